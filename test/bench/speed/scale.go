package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/test/bench/speed/report"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/process"
)

// vast is a listproxy before a replay.
type vast struct {
	replay *replay
	proxy  *harness.Proxy
	bench  *bench
	ready  time.Duration
	cpu    time.Duration // until ready
}

// measureScale measures what does not fit on a machine together with etcd.
func measureScale(ctx context.Context, s settings, r *report.Report) error {
	binary, err := harness.BuildPlainProxy(ctx)
	if err != nil {
		return err
	}
	cp, err := controlplane.Start(ctx, controlplane.Options{Log: func(line string) { r.Log("%s", line) }})
	if err != nil {
		return err
	}
	defer cp.Stop()
	client, err := startChild(roleClient)
	if err != nil {
		return err
	}
	defer client.stop()
	r.Say(scaleIntroduction)
	growth := &report.Table{Caption: "Growth: the same requests, for more and more pods of " + report.Size(int64(s.small)) + ".", Head: []string{
		"pods", "until ready", "CPU until ready", "memory", "memory/pods' bytes", "500 in the middle, CPU", "100 by label", "30 by node",
	}}
	var groups []report.Group
	for _, n := range s.sizes {
		err := withVast(ctx, cp, client, binary, s, n, s.small, r, func(v *vast) error {
			costs, err := v.growth(growth, n, s)
			groups = append(groups, report.Group{Label: strconv.Itoa(n) + " pods", Values: costs})
			return err
		})
		if err != nil {
			return fmt.Errorf("%d pods: %w", n, err)
		}
		r.Log("growth: %d pods measured", n)
	}
	r.Add(growth)
	r.Draw("growth", "CPU of listproxy for a request, of ever more pods", report.Bars("CPU of listproxy for a request, of ever more pods",
		[]string{"500 in the middle", "100 by label", "30 by node"}, groups, func(v float64) string { return report.Millis(time.Duration(v)) }))
	for _, measure := range []func(*vast) error{
		func(v *vast) error { return v.herd(ctx, s, r) },
		func(v *vast) error { return v.history(ctx, s, r) },
		func(v *vast) error { return v.flood(ctx, s, r) },
	} {
		// A fresh listproxy each, whose memory is not yet anything else's.
		if err := withVast(ctx, cp, client, binary, s, s.pods, s.large, r, measure); err != nil {
			return err
		}
	}
	return nil
}

const scaleIntroduction = `
## Many pods and many changes

Pods come from an upstream that makes them when they are asked for, since a real kube-apiserver and
its etcd would fill the machine. Everything else, above all reviews, comes from a real kube-apiserver.
`

// withVast runs listproxy before a replay while do runs.
func withVast(
	ctx context.Context, cp *controlplane.ControlPlane, client *child, binary string, s settings, n, each int, r *report.Report,
	do func(*vast) error,
) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	v := &vast{}
	if v.replay, err = startReplay(ctx, cp, n, each); err != nil {
		return err
	}
	defer v.replay.hop.Close()
	begun := time.Now()
	v.proxy, err = harness.StartProxy(ctx, harness.ProxyOptions{
		Upstream: v.replay.hop.RESTConfig(cp.RESTConfig(controlplane.Feed)), Binary: binary,
		Args: append([]string{"--log-level", "info", "--eager", "pods", "--cache-bytes", "0", "--max-inflight-bytes", "0"}, s.args...),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.proxy.Stop()) }()
	v.ready = time.Since(begun)
	if v.cpu, err = process.CPU(v.proxy.PID()); err != nil {
		return err
	}
	config := v.proxy.RESTConfig(cp.RESTConfig(controlplane.Admin))
	v.bench = &bench{
		client: client, rounds: s.rounds, requests: s.requests, bytes: int64(s.megabyte) * 1e6, clients: s.clients, log: r.Log,
		contenders: []contender{{
			name: nameProxy, pid: v.proxy.PID(), hit: true, share: 1,
			server: server{URL: config.Host, CA: config.CAData, Token: config.BearerToken},
		}},
	}
	return do(v)
}

// cost measures a request some rounds, and returns its figures.
func (v *vast) cost(query url.Values, n int) (figures, error) {
	var f figures
	for range v.bench.rounds {
		if err := v.bench.measure(v.bench.contenders[0], load{Path: list(query), Accept: acceptJSON}, n, &f); err != nil {
			return f, err
		}
	}
	return f, nil
}

// growth adds a line about n pods, and returns what the requests in it cost.
func (v *vast) growth(t *report.Table, n int, s settings) (costs []float64, err error) {
	revision := v.replay.revision()
	resident, _, err := process.Memory(v.proxy.PID())
	if err != nil {
		return nil, err
	}
	labelled, placed := anyVersion(), anyVersion()
	labelled.Set("labelSelector", "group=g-7")
	placed.Set("fieldSelector", "spec.nodeName=node-7")
	queries := []url.Values{
		{"limit": {"500"}, "continue": {policy.EncodeContinue(revision, "default/"+podName(n/2)+"\x00")}}, labelled, placed,
	}
	cells := []string{
		strconv.Itoa(n), report.Millis(v.ready), report.Millis(v.cpu), report.Size(resident), report.Ratio(float64(resident), float64(n*s.small)),
	}
	for _, q := range queries {
		f, err := v.cost(q, s.clients*max(1, s.requests/s.clients/4))
		if err != nil {
			return nil, err
		}
		costs = append(costs, float64(middle(f.cpu)))
		cells = append(cells, report.Millis(middle(f.cpu)))
	}
	t.Add(cells...)
	return costs, nil
}

// herd lets many clients ask for everything at the same time.
func (v *vast) herd(ctx context.Context, s settings, r *report.Report) error {
	t := &report.Table{Caption: fmt.Sprintf("%d clients ask for the same at once, from %d pods of %s. "+
		"A client that waits longer than --overload-wait gets a 429, which asks it to come again.",
		s.herd, s.pods, report.Size(int64(s.large))), Head: []string{
		"asked for", "each", "answered", "memory before", "at most", "CPU, all", "CPU, each", "time, median", "longest",
	}}
	page := exactly(strconv.FormatUint(v.replay.revision(), 10), 500)
	for _, asked := range []struct {
		name  string
		query url.Values
		gzip  bool
	}{{"a page of 500", page, false}, {"a page of 500, gzip", page, true}, {"all, gzip", anyVersion(), true}} {
		if err := process.ResetPeak(v.proxy.PID()); err != nil {
			return err
		}
		before, _, err := process.Memory(v.proxy.PID())
		if err != nil {
			return err
		}
		c := v.bench.contenders[0]
		o, used, err := v.bench.costs(load{
			Server: c.server, Path: list(asked.query), Accept: acceptJSON, Gzip: asked.gzip,
			Clients: s.herd, Each: 1, Hit: true, Refusals: true,
		}, c.pid)
		if err != nil {
			return fmt.Errorf("herd: %s: %.300w", asked.name, err)
		}
		_, peak, err := process.Memory(c.pid)
		if err != nil {
			return err
		}
		t.Add(asked.name, report.Size(o.Size), strconv.Itoa(len(o.Times)), report.Size(before), report.Size(peak),
			report.Millis(used[0]), report.Millis(used[0]/time.Duration(max(1, len(o.Times)))),
			report.Millis(o.median()), report.Millis(quantile(o.Times, 1)))
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
	r.Add(t)
	return nil
}

// history measures memory, freshness and lists of the past while objects change.
func (v *vast) history(ctx context.Context, s settings, r *report.Report) error {
	changing, cancel := context.WithCancel(ctx)
	defer cancel()
	var changes sync.WaitGroup
	defer changes.Wait()
	defer cancel()
	before := v.replay.revision()
	begun := time.Now()
	used, err := process.CPU(v.proxy.PID())
	if err != nil {
		return err
	}
	changes.Go(func() { v.replay.run(changing, s.rate) })

	// How soon what was sent is known: a list of nothing, not older than that.
	c := v.bench.contenders[0]
	var delays []time.Duration
	late := 0
	for time.Since(begun) < time.Duration(s.seconds)*time.Second {
		o, err := v.bench.ask(load{Server: c.server, Path: list(v.nothing()), Accept: acceptJSON, Clients: 1, Each: 1, Hit: true})
		if err != nil {
			late++ // than a list waits for its revision
		} else {
			delays = append(delays, o.median())
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	if err := v.awaitRevision(ctx); err != nil {
		return err
	}
	elapsed := time.Since(begun)
	after, err := process.CPU(v.proxy.PID())
	if err != nil {
		return err
	}
	resident, peak, err := process.Memory(v.proxy.PID())
	if err != nil {
		return err
	}
	slices.SortFunc(delays, cmp.Compare)
	events := v.replay.revision() - before
	known := int64(s.large) * (int64(s.pods) + int64(events))
	t := &report.Table{Caption: fmt.Sprintf("%d pods of %s, %d changes a second for %d s. "+
		"listproxy must know the pods and all changed versions.",
		s.pods, report.Size(int64(s.large)), s.rate, s.seconds), Head: []string{
		"changes", "a second", "CPU for each", "known after, median", "99%", "later than 100 ms",
		"memory", "at most", "must be known", "memory/known",
	}}
	t.Add(strconv.FormatUint(events, 10), fmt.Sprintf("%.0f", float64(events)/elapsed.Seconds()),
		report.Millis((after-used)/time.Duration(max(1, events))),
		report.Millis(quantile(delays, 0.5)), report.Millis(quantile(delays, 0.99)), strconv.Itoa(late),
		report.Size(resident), report.Size(peak), report.Size(known), report.Ratio(float64(resident), float64(known)))
	r.Add(t)

	// While changes go on: pages of now, and of the beginning of what is remembered.
	pages := &report.Table{Caption: "A page of 500 at an exact revision, during these changes.", Head: []string{"revision", "CPU", "time"}}
	head := v.replay.revision()
	window := uint64(s.rate * max(1, min(s.seconds, 120)-20))
	for _, at := range []struct {
		name     string
		revision uint64
	}{{"newest", head}, {fmt.Sprintf("%d changes ago", min(window, events)), head - min(window, events)}} {
		f, err := v.cost(exactly(strconv.FormatUint(at.revision, 10), 500), s.clients)
		if err != nil {
			r.Log("history: %v", err)
			pages.Add(at.name, "not from memory")
			continue
		}
		pages.Add(at.name, report.Millis(middle(f.cpu)), report.Millis(middle(f.wall)))
	}
	r.Add(pages)
	return nil
}

// flood sends changes as fast as they are taken.
func (v *vast) flood(ctx context.Context, s settings, r *report.Report) error {
	n := s.rate * floodSeconds
	begun := time.Now()
	used, err := process.Used(func() error {
		v.replay.change(n)
		return v.awaitRevision(ctx)
	}, v.proxy.PID())
	if err != nil {
		return err
	}
	elapsed := time.Since(begun)
	t := &report.Table{Caption: "As many changes as are sent in " + strconv.Itoa(floodSeconds) +
		" s above, all at once. The time includes the upstream, which makes them, and TLS.", Head: []string{
		"changes", "known after", "a second", "CPU for each",
	}}
	t.Add(strconv.Itoa(n), report.Millis(elapsed), fmt.Sprintf("%.0f", float64(n)/elapsed.Seconds()), report.Millis(used[0]/time.Duration(n)))
	r.Add(t)
	return nil
}

// floodSeconds is how many seconds' changes a flood has.
const floodSeconds = 20

// nothing is the query for a list of no object, not older than the replay is now.
func (v *vast) nothing() url.Values {
	return url.Values{
		"resourceVersion": {strconv.FormatUint(v.replay.revision(), 10)}, "resourceVersionMatch": {"NotOlderThan"},
		"fieldSelector": {"metadata.name=none"},
	}
}

// awaitRevision waits until listproxy has come as far as the replay is now.
func (v *vast) awaitRevision(ctx context.Context) error {
	q := v.nothing()
	c := v.bench.contenders[0]
	for begun := time.Now(); time.Since(begun) < warmFor; {
		_, err := v.bench.ask(load{Server: c.server, Path: list(q), Accept: acceptJSON, Clients: 1, Each: 1, Hit: true})
		if err == nil {
			return nil
		}
		if err := pause(ctx, warmEvery); err != nil {
			return err
		}
	}
	return errors.New("listproxy does not keep up with the changes")
}
