//! Text → counts, on one thread and on all.

use bytemill::internals::Cutter;
use bytemill::internals::counts::Counts;
use bytemill::internals::{Job, Phase};
use bytemill_benches::{Kind, text};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

fn count(c: &mut Criterion) {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    for (kind_name, kind) in Kind::ALL {
        let text = text(kind, 8 << 20);
        let mut group = c.benchmark_group(format!("count/{kind_name}"));
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.sample_size(20);
        for threads in [1, cores] {
            group.bench_with_input(
                BenchmarkId::new("threads", threads),
                &threads,
                |b, &threads| {
                    b.iter(|| {
                        let cutter = Cutter::new(&["gpt2"], &["<|endoftext|>"]).unwrap();
                        let mut counts = Counts::new(cutter, threads);
                        counts.add_texts(&[text.as_bytes()], &Job::new(Phase::Count, 0)).unwrap();
                        counts.stats(&Job::new(Phase::Count, 0)).unwrap().n_pieces
                    });
                },
            );
        }
        group.finish();
    }
}

criterion_group!(benches, count);
criterion_main!(benches);
