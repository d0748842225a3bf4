//! Counts → merges.

use bytemill::internals::Cutter;
use bytemill::internals::counts::Counts;
use bytemill::internals::merges::{ByteBase, Options, learn_merges};
use bytemill::internals::{Job, Phase};
use bytemill_benches::{Kind, text};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

fn merge(c: &mut Criterion) {
    let mut group = c.benchmark_group("merge");
    group.sample_size(10);
    for (kind_name, kind) in Kind::ALL {
        let text = text(kind, 8 << 20);
        let cutter = Cutter::new(&["gpt2"], &["<|endoftext|>"]).unwrap();
        let mut counts = Counts::new(cutter, 1);
        counts.add_texts(&[text.as_bytes()], &Job::new(Phase::Count, 0)).unwrap();
        let pieces = counts.sorted(&Job::new(Phase::Count, 0)).unwrap();
        for n_merges in [1_000, 10_000] {
            let options = Options { n_merges, ..Options::default() };
            group.bench_function(BenchmarkId::new(kind_name, n_merges), |b| {
                b.iter(|| {
                    learn_merges(pieces.clone(), &ByteBase, &options, &Job::new(Phase::Merge, 0))
                        .unwrap()
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, merge);
criterion_main!(benches);
