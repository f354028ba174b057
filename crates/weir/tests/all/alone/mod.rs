mod bench_live;
