package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/process"
)

// loads measures what it costs to load (streaming lists), to start, and to follow changes, and the memory after each.
func loads(ctx context.Context, b *bench) error {
	if err := b.fillPods(ctx); err != nil {
		return err
	}
	streams := modify(
		fromAnywhere("a streaming list", podsWith+ask.StreamingList, jsonPlain, jsonGzip, protobufPlain, clientGo),
		func(q *request) { q.stream = true },
	)
	caption := fmt.Sprintf("The streaming list with which listproxy loads, of %d pods. kube-apiserver compresses it from 1.37 on.",
		b.settings.pods)
	if _, err := b.compare(ctx, caption, []side{direct}, streams); err != nil {
		return err
	}
	listOfAll, err := b.warmUp(ctx, direct, fromAnywhere("", podsWith+ask.AnyVersion, jsonPlain)[0]) // for its size
	if err != nil {
		return err
	}
	used, err := process.Used(func() error {
		const clients, perClient = 1, 1
		return b.send(ctx, direct, streams[0], clients, perClient, &result{})
	}, os.Getpid())
	if err != nil {
		return err
	}
	readerOnly := &result{request: "a start", side: limitName, answers: 1, proxyCPU: used[0]}

	starts := &table{caption: "A start of listproxy: until it is ready, with pods loaded in JSON; and the memory of both processes then, " +
		"of which `for` is the bytes of the list. The limit is a client that reads the same streaming list and keeps nothing."}
	changes := &table{caption: fmt.Sprintf("What a change costs at %d a second, and the memory after these changes, of which `for` is the bytes "+
		"of the list and of every changed pod: all are kept for --history-window.", changesPerSecond)}
	for _, build := range b.programs() {
		started, rows, err := b.measureStart(ctx, build, listOfAll.bytes)
		if err != nil {
			return err
		}
		starts.add(append(rows, readerOnly)...)
		changed, err := b.measureChanges(ctx, started, listOfAll.bytes)
		if err != nil {
			return err
		}
		changes.add(changed)
		if err := b.stopLast(); err != nil {
			return err
		}
	}
	b.report(starts)
	b.report(changes)
	return nil
}

// measureStart starts a program, and returns it with the rows of kube-apiserver and of the start. listBytes is the size of the
// list of all pods.
func (b *bench) measureStart(ctx context.Context, build program, listBytes int64) (started side, rows []*result, err error) {
	kube := &result{request: "a start", side: direct.name, storedBytes: listBytes}
	r := &result{request: "a start", side: "listproxy" + build.suffix, answers: 1, storedBytes: listBytes}
	begun := time.Now()
	// The CPU time of kube-apiserver, while listproxy starts.
	if err := b.measureCPU(direct, notIdle, r, func() (err error) {
		started, err = b.startProgram(ctx, build, "listproxy", "--eager", "pods")
		return err
	}); err != nil {
		return started, nil, err
	}
	r.times = []time.Duration{time.Since(begun)}
	if r.proxyCPU, err = process.CPU(started.proxy.PID()); err != nil { // since the process began
		return started, nil, err
	}
	kube.memory, r.memory, err = b.residentMemory(started)
	return started, []*result{kube, r}, err
}

// measureChanges changes pods and returns the row of a change at a side.
func (b *bench) measureChanges(ctx context.Context, at side, listBytes int64) (*result, error) {
	r := &result{request: "a change", side: at.name}
	pods, err := b.readPods(ctx, "", b.settings.pods)
	if err != nil {
		return nil, err
	}
	idle, err := b.idleShares(ctx, at)
	if err != nil {
		return nil, err
	}
	if err := b.measureCPU(at, idle, r, func() (err error) {
		r.answers, err = b.changePods(ctx, pods, changesPerSecond, changesPerSecond*b.settings.seconds)
		clock.Sleep(ctx, time.Second) // until listproxy has the last changes
		return err
	}); err != nil {
		return nil, err
	}
	_, r.memory, err = b.residentMemory(at)
	podBytes := listBytes / int64(b.settings.pods)
	r.storedBytes = listBytes + podBytes*int64(r.answers) // every changed version of a pod is kept
	return r, err
}
