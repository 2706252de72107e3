// Command demo shows listproxy at work: it starts etcd, kube-apiserver and listproxy on
// loopback, fills them with pods, asks both for the same lists, and says how long each took,
// whether the bytes were the same and where they came from. It is what make demo runs.
//
// The files, in the order of what happens: main.go (flags, signals), scene.go (what runs),
// objects.go and load.go (what is stored; package workload makes the pods), client.go and
// compare.go (one comparison), lists.go and watch.go (what is shown), switches.go and cpu.go (what
// --consistent-lists and --watches bring, in CPU), report.go and progress.go (how it is shown),
// play.go (what to try by hand), traces.go (with Jaeger, where to look).
//
// It fails if an answer differs from kube-apiserver's, or if one that can come from memory
// did not. It never fails because something took long.
package main
