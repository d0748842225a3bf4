//! Text → ids: a text seen before (the cache is warm), a fresh tokenizer, and one long piece.

use bytemill::Recognise;
use bytemill::Spec;
use bytemill::Tokenizer;
use bytemill::internals::Cutter;
use bytemill::internals::counts::Counts;
use bytemill::internals::learning::{Target, learn};
use bytemill::internals::{Job, Phase};
use bytemill_benches::{Kind, text};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

fn learned(text: &str) -> Spec {
    let specials = ["<|endoftext|>".to_owned()];
    let mut counts = Counts::new(Cutter::new(&["gpt2"], &specials).unwrap(), 1);
    counts.add_texts(&[text.as_bytes()], &Job::new(Phase::Count, 0)).unwrap();
    let job = Job::new(Phase::Merge, 0);
    learn(&mut counts, &Target::new(10_000, &specials), &job).unwrap()
}

fn ids(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    tokenizer.encode(text.as_bytes(), &Recognise::All, &mut ids).unwrap();
    ids
}

fn encode(c: &mut Criterion) {
    for (kind_name, kind) in Kind::ALL {
        let text = text(kind, 4 << 20);
        let spec = learned(&text);
        let tokenizer = Tokenizer::new(&spec).unwrap();
        let mut group = c.benchmark_group(format!("encode/{kind_name}"));
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.sample_size(20);
        group.bench_function("again", |b| b.iter(|| ids(&tokenizer, &text)));
        group.bench_function("first time", |b| {
            b.iter_batched(
                || Tokenizer::new(&spec).unwrap(),
                |tokenizer| ids(&tokenizer, &text),
                BatchSize::PerIteration,
            );
        });
        let one: String = text.chars().filter(|c| c.is_alphabetic()).take(1 << 20).collect();
        group.throughput(Throughput::Bytes(one.len() as u64));
        group.bench_function("one piece", |b| b.iter(|| ids(&tokenizer, &one)));
        group.finish();
    }
}

criterion_group!(benches, encode);
criterion_main!(benches);
