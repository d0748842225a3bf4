//! Text → pieces.

use bytemill::internals::pattern::{NAMES, Pattern};
use bytemill_benches::{Kind, text};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn scan(c: &mut Criterion) {
    for (kind_name, kind) in Kind::ALL {
        let text = text(kind, 1 << 20);
        let mut group = c.benchmark_group(format!("scan/{kind_name}"));
        group.throughput(Throughput::Bytes(text.len() as u64));
        for name in NAMES {
            let pattern = Pattern::new(&[name]).unwrap();
            group.bench_function(*name, |b| {
                b.iter(|| {
                    let mut n = 0u64;
                    pattern.split(text.as_bytes(), |piece| n += piece.len() as u64).unwrap();
                    n
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, scan);
criterion_main!(benches);
