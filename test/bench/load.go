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

// loads measures what loads cost kube-apiserver, a start, and the memory that objects and what has
// changed take.
func loads(ctx context.Context, b *bench) error {
	if err := b.fill(ctx); err != nil {
		return err
	}
	var all []request
	for _, q := range in("a streaming list", podsPath+ask.StreamingList, false, plain, zipped, protobuf, goClients) {
		q.stream = true
		all = append(all, q)
	}
	direct := side{name: straight}
	if _, err := b.compare(ctx, fmt.Sprintf("The streaming list with which listproxy loads, of %d pods. kube-apiserver compresses it from 1.37 on.",
		b.settings.pods), []side{direct}, all); err != nil {
		return err
	}
	whole, err := b.learn(ctx, direct, in("", podsPath+ask.AnyVersion, false, plain)[0])
	if err != nil {
		return err
	}
	limit := &result{asked: "a start", of: limitName, answers: 1}
	used, err := process.Used(func() error { return b.ask(ctx, direct, all[0], 1, 1, &result{}) }, os.Getpid())
	if err != nil {
		return err
	}
	limit.proxy = used[0]

	start := &table{caption: "A start of listproxy: until it is ready, with pods loaded in JSON; and the memory of both processes then, of which `for` is " +
		"the bytes of the list. The limit is a client that reads the same streaming list and keeps nothing."}
	change := &table{caption: fmt.Sprintf("What a change costs at %d a second, and the memory after these changes, of which `for` is the bytes of the list and of every "+
		"changed pod: all are kept for --history-window.", b.settings.changes)}
	for _, of := range b.programs() {
		if err := b.loadOnce(ctx, of.binary, "listproxy"+of.adds, whole.bytes, limit, start, change); err != nil {
			return err
		}
	}
	b.report(start)
	b.report(change)
	return nil
}

// loadOnce starts a program and adds its row to each table, for a list of so many bytes.
func (b *bench) loadOnce(ctx context.Context, binary, name string, bytes int64, limit *result, start, change *table) error {
	// Its process begins with nothing, so what it has used when it is ready is what the start took.
	begun := time.Now()
	kube := &result{asked: "a start", of: straight}
	var proxied side
	if err := b.cost(side{name: straight}, nil, kube, func() error {
		p, err := b.start(ctx, binary, b.cp.RESTConfig(controlplane.Feed), "--eager", "pods")
		proxied = side{name, p}
		return err
	}); err != nil {
		return err
	}
	started := &result{asked: "a start", of: name, answers: 1, kube: kube.kube, times: []time.Duration{time.Since(begun)}, known: bytes}
	ofKube := &result{asked: "a start", of: straight, known: bytes}
	var err error
	if started.proxy, err = process.CPU(proxied.proxy.PID()); err != nil {
		return err
	}
	if ofKube.memory, started.memory, err = b.memory(proxied); err != nil {
		return err
	}
	start.add(ofKube, started, limit)

	changed := &result{asked: "a change", of: name}
	pods, err := b.some(ctx, "", b.settings.pods)
	if err != nil {
		return err
	}
	idle, err := b.idle(ctx, proxied)
	if err != nil {
		return err
	}
	if err := b.cost(proxied, idle, changed, func() (err error) {
		changed.answers, err = b.change(ctx, pods, b.settings.changes, b.settings.changes*b.settings.seconds)
		clock.Sleep(ctx, time.Second) // the last ones arrive
		return err
	}); err != nil {
		return err
	}
	_, changed.memory, err = b.memory(proxied)
	changed.known = bytes + bytes/int64(b.settings.pods)*int64(changed.answers)
	change.add(changed)
	return errors.Join(err, b.stop())
}
