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

// runLoad measures three things, each with its table:
//   - what the streaming list that listproxy loads pods with costs kube-apiserver
//   - what a start of listproxy costs until it is ready, in CPU time and memory
//   - what a change of a pod costs afterwards, in CPU time and memory
func runLoad(ctx context.Context, b *bench) error {
	streams := modify(
		fromAnywhere("a streaming list", podsWith+ask.StreamingList, jsonPlain, jsonGzip, protobufPlain, clientGo),
		func(q *request) { q.stream = true },
	)
	caption := fmt.Sprintf("The streaming list with which listproxy loads, of %d pods. kube-apiserver compresses it from 1.37 on.",
		b.settings.pods)
	if _, err := b.compare(ctx, caption, []side{direct}, streams); err != nil {
		return err
	}
	listOfAll, err := b.warmUp(ctx, direct, newRequest(podsWith+ask.AnyVersion, jsonPlain))
	if err != nil {
		return err
	}
	limitOfStart, err := b.measureLimitOfStart(ctx, streams[0])
	if err != nil {
		return err
	}
	starts := &table{caption: "A start of listproxy: until it is ready, with pods loaded in JSON; and the memory of both processes then, " +
		"of which `for` is the bytes of the list. The limit is a client that reads the same streaming list and keeps nothing."}
	changes := &table{caption: fmt.Sprintf("What a change costs at %d a second, and the memory after these changes, of which `for` is the bytes "+
		"of the list and of every changed pod: all are kept for --history-window.", changesPerSecond)}
	for _, binary := range b.programs() {
		started, rows, err := b.measureStart(ctx, binary, listOfAll.bytes)
		if err != nil {
			return err
		}
		starts.add(append(rows, limitOfStart)...)
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

// measureLimitOfStart returns the row with the least that a start can cost: the CPU time with which this process reads the
// streaming list, keeping nothing.
func (b *bench) measureLimitOfStart(ctx context.Context, stream request) (*row, error) {
	readStream := func() error { return b.send(ctx, direct, stream, once, &row{}) }
	used, err := process.Used(readStream, os.Getpid())
	if err != nil {
		return nil, err
	}
	return &row{request: "a start", side: limitName, answers: 1, proxyCPU: used[0]}, nil
}

// measureStart starts a program of listproxy, and returns its side. It also returns two rows of a start: kube-apiserver's and
// the program's. listBytes is the size of the list of all pods.
func (b *bench) measureStart(ctx context.Context, binary program, listBytes int64) (started side, rows []*row, err error) {
	kube := &row{request: "a start", side: direct.name, storedBytes: listBytes}
	r := &row{request: "a start", side: "listproxy" + binary.suffix, answers: 1, storedBytes: listBytes}
	begun := time.Now()
	// This measures kube-apiserver only. listproxy's process does not exist yet, and all of its CPU time is read below.
	err = b.measureCPU(direct, noIdle, r, func() (err error) {
		started, err = b.startProgram(ctx, binary, "listproxy", "--eager", "pods")
		return err
	})
	if err != nil {
		return started, nil, err
	}
	r.times = []time.Duration{time.Since(begun)}
	r.proxyCPU, err = process.CPU(started.proxy.PID()) // all that the process has used since it began
	if err != nil {
		return started, nil, err
	}
	kube.memory, r.memory, err = b.residentMemory(started)
	return started, []*row{kube, r}, err
}

// measureChanges changes pods, and returns the row with the cost of a change at a side. listBytes is the size of the list of
// all pods.
func (b *bench) measureChanges(ctx context.Context, target side, listBytes int64) (*row, error) {
	r := &row{request: "a change", side: target.name}
	pods, err := b.readPods(ctx, "", b.settings.pods)
	if err != nil {
		return nil, err
	}
	idle, err := b.measureIdle(ctx, target)
	if err != nil {
		return nil, err
	}
	err = b.measureCPU(target, idle, r, func() (err error) {
		r.answers, err = b.changePods(ctx, pods, changesPerSecond, changesPerSecond*b.settings.seconds)
		clock.Sleep(ctx, time.Second) // until listproxy has the last changes
		return err
	})
	if err != nil {
		return nil, err
	}
	_, r.memory, err = b.residentMemory(target)
	podBytes := listBytes / int64(b.settings.pods)
	r.storedBytes = listBytes + podBytes*int64(r.answers) // each change adds a version of a pod, which stays in the history
	return r, err
}
