package main

import (
	"context"
	"fmt"
	"time"

	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
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
	t := &table{caption: fmt.Sprintf("The streaming list with which listproxy loads, of %d pods. kube-apiserver compresses it from 1.37 on.", b.settings.pods)}
	direct := side{name: straight}
	if err := b.compare(ctx, t, []side{direct}, all); err != nil {
		return err
	}
	b.report.add(t)
	whole, err := b.learn(ctx, direct, in("", podsPath+ask.AnyVersion, false, plain)[0])
	if err != nil {
		return err
	}

	// Its process begins with nothing, so what it has used when it is ready is what the start took.
	begun := time.Now()
	kube := &result{asked: "a start", of: straight}
	var proxied side
	if err := b.cost(direct, nil, kube, func() (err error) {
		proxied, err = b.through(ctx, "listproxy", "--eager", "pods")
		return err
	}); err != nil {
		return err
	}
	started := &result{asked: "a start", of: "listproxy", answers: 1, kube: kube.kube, times: []time.Duration{time.Since(begun)}, known: whole.bytes}
	ofKube := &result{asked: "a start", of: straight, known: whole.bytes}
	if started.proxy, err = process.CPU(proxied.proxy.PID()); err != nil {
		return err
	}
	if ofKube.memory, started.memory, err = b.memory(proxied); err != nil {
		return err
	}
	t = &table{caption: "A start of listproxy: until it is ready, with pods loaded in JSON; and the memory of both processes then, of which `for` is the bytes of the list."}
	t.add(ofKube, started)
	b.report.add(t)

	changed := &result{asked: "a change", of: "listproxy"}
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
		poll.Pause(ctx, time.Second) // the last ones arrive
		return err
	}); err != nil {
		return err
	}
	_, changed.memory, err = b.memory(proxied)
	changed.known = whole.bytes + whole.bytes/int64(b.settings.pods)*int64(changed.answers)
	t = &table{caption: fmt.Sprintf("What a change costs at %d a second, and the memory after these changes, of which `for` is the bytes of the list and of every "+
		"changed pod: all are kept for --history-window.", b.settings.changes)}
	t.add(changed)
	b.report.add(t)
	return err
}
