package main

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/events"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/process"
)

const (
	// informersAtOnce is how many programs begin at the same time, as after a rollout.
	informersAtOnce = 10
	// newestLists is how often somebody asks for the newest state, one list after the other.
	newestLists = 10
	// changePause is how long nothing changes between two changes of pods.
	changePause = 50 * time.Millisecond
)

// phase is what programs do at one server, and what it cost.
type phase struct {
	what              string
	took              time.Duration
	apiserver, proxy  time.Duration // CPU
	requests, answers int           // and how many came from memory
}

// loadOf is what programs do: it is done at kube-apiserver, and then at listproxy.
type loadOf struct {
	what  string
	count int
	do    func(ctx context.Context, c client) (cacheStatus string, err error)
	// atOnce: all at the same time, else one after the other.
	atOnce bool
}

// switches shows what a listproxy with both switches brings: programs that begin at once, and one
// that asks for the newest state again and again, while pods change.
func (s *scene) switches(ctx context.Context) (ok bool, err error) {
	proxy, err := harness.StartProxy(ctx, harness.ProxyOptions{
		Upstream: s.cp.RESTConfig(controlplane.Feed), Binary: s.binary,
		Args: []string{"--consistent-lists=always", "--watches", "--eager", "pods"},
	})
	if err != nil {
		return false, fmt.Errorf("start listproxy with the switches: %w", err)
	}
	defer func() {
		if stopErr := proxy.Stop(); err == nil {
			err = stopErr
		}
	}()
	cfg := s.cp.RESTConfig(controlplane.Admin)
	cfg.UserAgent = "listproxy-demo"
	proxied, err := newClient(proxy.RESTConfig(cfg))
	if err != nil {
		return false, err
	}
	say(s.out, "\nwith --consistent-lists=always and --watches, while pods change:\n")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go s.keepChanging(ctx)

	loads := []loadOf{
		{fmt.Sprintf("%d informers of all pods start at once", informersAtOnce), informersAtOnce, streams, true},
		{fmt.Sprintf("%d lists of all pods, newest state", newestLists), newestLists, lists, false},
	}
	ok = true
	var phases []phase
	for _, load := range loads {
		if err := settled(ctx, load, proxied); err != nil {
			return false, err
		}
		direct, err := s.measure(ctx, load, "kube-apiserver", s.admin.direct, proxy.PID())
		if err != nil {
			return false, err
		}
		ours, err := s.measure(ctx, load, "listproxy", proxied, proxy.PID())
		if err != nil {
			return false, err
		}
		ok = ok && ours.answers == ours.requests
		phases = append(phases, direct, ours)
	}
	s.printPhases(phases)
	return ok, nil
}

// settled asks until listproxy answers from memory.
func settled(ctx context.Context, load loadOf, c client) error {
	until, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for {
		status, err := load.do(until, c)
		if err == nil && isHit(status) {
			return nil
		}
		if !poll.Pause(until, pollPause) {
			return ctx.Err() // the measured ones say that they did not come from memory
		}
	}
}

// measure does a load at one server, and shows the CPU of both as it goes.
func (s *scene) measure(ctx context.Context, load loadOf, at string, c client, proxyPID int) (phase, error) {
	p := phase{what: load.what + ", at " + at, requests: load.count}
	apiserverPID, err := s.cp.APIServerPID()
	if err != nil {
		return p, err
	}
	both := func() (apiserver, proxy time.Duration, err error) {
		if apiserver, err = process.CPU(apiserverPID); err != nil {
			return 0, 0, err
		}
		proxy, err = process.CPU(proxyPID)
		return apiserver, proxy, err
	}
	apiserver, own, err := both()
	if err != nil {
		return p, err
	}
	b := newBar(s.out, p.what, load.count, func() string {
		nowAPI, nowOwn, err := both()
		if err != nil {
			return ""
		}
		return fmt.Sprintf(", CPU so far: kube-apiserver %.1f s, listproxy %.1f s", (nowAPI - apiserver).Seconds(), (nowOwn - own).Seconds())
	})
	begun := time.Now()
	var fromMemory atomic.Int64
	group, working := errgroup.WithContext(ctx)
	if !load.atOnce {
		group.SetLimit(1)
	}
	for range load.count {
		group.Go(func() error {
			status, err := load.do(working, c)
			if err == nil {
				b.step()
			}
			if isHit(status) {
				fromMemory.Add(1)
			}
			return err
		})
	}
	err = group.Wait()
	p.took = time.Since(begun)
	b.finish()
	if err != nil {
		return p, fmt.Errorf("%s: %w", p.what, err)
	}
	nowAPI, nowOwn, err := both()
	p.apiserver, p.proxy, p.answers = nowAPI-apiserver, nowOwn-own, int(fromMemory.Load())
	return p, err
}

// streams reads the state as an informer does when it begins, up to the bookmark that ends it.
func streams(ctx context.Context, c client) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of the watch that would go on
	resp, err := c.With("Accept-Encoding", "identity").Open(ctx, http.MethodGet, pods+"?"+ask.StreamingList, nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("a streaming list: HTTP %d", resp.StatusCode)
	}
	if err := events.SkipInitial(resp.Body); err != nil {
		return "", fmt.Errorf("a streaming list: %w", err)
	}
	return resp.Header.Get("Cache-Status"), nil
}

// lists asks for the newest state.
func lists(ctx context.Context, c client) (string, error) {
	a, err := c.getAs(ctx, ask.JSON, pods, false)
	if err != nil {
		return "", err
	}
	if a.Code != http.StatusOK {
		return "", fmt.Errorf("a list of the newest state: %s", a)
	}
	return a.Source(), nil
}

// keepChanging changes a pod now and then, until ctx ends.
func (s *scene) keepChanging(ctx context.Context) {
	state, err := s.state(ctx)
	if err != nil {
		return
	}
	for i := 0; poll.Pause(ctx, changePause); i++ {
		pod := state.pods[i%len(state.pods)]
		patch := object{"metadata": object{"annotations": object{"demo.example.com/round": fmt.Sprint(i)}}}
		// One that is gone is no matter.
		_, _ = s.admin.direct.Send(ctx, http.MethodPatch, podsIn(pod.Namespace)+"/"+pod.Name, patch)
	}
}

// printPhases says what each phase cost, and what that comes to.
func (s *scene) printPhases(phases []phase) {
	format := "%-64s %8s %20s %15s %12s\n"
	say(s.out, "\n")
	say(s.out, format, "", "took", "kube-apiserver, CPU", "listproxy, CPU", "from memory")
	var direct, apiserver, proxy time.Duration
	for i, p := range phases {
		memory := "-"
		if i%2 == 1 {
			memory = fmt.Sprintf("%d of %d", p.answers, p.requests)
			apiserver, proxy = apiserver+p.apiserver, proxy+p.proxy
		} else {
			direct += p.apiserver
		}
		say(s.out, format, p.what, inSeconds(p.took), inSeconds(p.apiserver), inSeconds(p.proxy), memory)
	}
	say(s.out, "\n%s\n", sentence(direct, apiserver, proxy))
}

// sentence says what the switches brought, with figures.
func sentence(direct, apiserver, proxy time.Duration) string {
	// What is measured in hundredths of a second is at least one.
	part := func(d time.Duration) float64 { return max(d.Seconds(), 0.01) / max(direct.Seconds(), 0.01) * 100 }
	return fmt.Sprintf("For the same requests kube-apiserver took %s of CPU without listproxy, and %s (%.0f%%) with it; "+
		"both together %s (%.0f%%).",
		inSeconds(direct), inSeconds(apiserver), part(apiserver), inSeconds(apiserver+proxy), part(apiserver+proxy))
}

func inSeconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
