package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/process"
)

// loads measures three costs: of streaming lists, of a start, and of changes, with the memory that objects and changes take.
func loads(ctx context.Context, b *bench) error {
	if err := b.fillPods(ctx); err != nil {
		return err
	}
	streams := modify(
		fromAnywhere("a streaming list", podsPath+ask.StreamingList, jsonPlain, jsonGzip, protobufPlain, clientGo),
		func(q *request) { q.stream = true },
	)
	caption := fmt.Sprintf("The streaming list with which listproxy loads, of %d pods. kube-apiserver compresses it from 1.37 on.",
		b.settings.pods)
	if _, err := b.compare(ctx, caption, []side{direct}, streams); err != nil {
		return err
	}
	whole, err := b.warmUp(ctx, direct, fromAnywhere("", podsPath+ask.AnyVersion, jsonPlain)[0])
	if err != nil {
		return err
	}
	used, err := process.Used(func() error { return b.send(ctx, direct, streams[0], 1, 1, &result{}) }, os.Getpid())
	if err != nil {
		return err
	}
	limit := &result{request: "a start", side: limitName, answers: 1, proxyCPU: used[0]}

	start := &table{caption: "A start of listproxy: until it is ready, with pods loaded in JSON; and the memory of both processes then, " +
		"of which `for` is the bytes of the list. The limit is a client that reads the same streaming list and keeps nothing."}
	change := &table{caption: fmt.Sprintf("What a change costs at %d a second, and the memory after these changes, of which `for` is the bytes "+
		"of the list and of every changed pod: all are kept for --history-window.", b.settings.changes)}
	for _, program := range b.programs() {
		if err := b.measureLoad(ctx, program, whole.bytes, limit, start, change); err != nil {
			return err
		}
	}
	b.report(start)
	b.report(change)
	return nil
}

// measureLoad starts a program and adds its rows to both tables. listBytes is the size of the list of all pods.
func (b *bench) measureLoad(ctx context.Context, program program, listBytes int64, limit *result, start, change *table) error {
	name := "listproxy" + program.suffix
	var at side
	started := &result{request: "a start", side: name, answers: 1, storedBytes: listBytes}
	begun := time.Now()
	if err := b.measureCPU(direct, nil, started, func() error { // of kube-apiserver
		p, err := b.start(ctx, program.path, b.cp.RESTConfig(controlplane.Feed), "--eager", "pods")
		at = side{name: name, proxy: p}
		return err
	}); err != nil {
		return err
	}
	started.times = []time.Duration{time.Since(begun)}
	kube := &result{request: "a start", side: direct.name, storedBytes: listBytes}
	var err error
	if started.proxyCPU, err = process.CPU(at.proxy.PID()); err != nil { // since the process began
		return err
	}
	if kube.memory, started.memory, err = b.residentMemory(at); err != nil {
		return err
	}
	start.add(kube, started, limit)

	changed := &result{request: "a change", side: name}
	pods, err := b.readPods(ctx, "", b.settings.pods)
	if err != nil {
		return err
	}
	idleShares, err := b.idleShares(ctx, at)
	if err != nil {
		return err
	}
	if err := b.measureCPU(at, idleShares, changed, func() (err error) {
		changed.answers, err = b.changePods(ctx, pods, b.settings.changes, b.settings.changes*b.settings.seconds)
		clock.Sleep(ctx, time.Second) // until listproxy has the last changes
		return err
	}); err != nil {
		return err
	}
	_, changed.memory, err = b.residentMemory(at)
	podBytes := listBytes / int64(b.settings.pods)
	changed.storedBytes = listBytes + podBytes*int64(changed.answers)
	change.add(changed)
	return errors.Join(err, b.stopLast())
}
