package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/test/bench/speed/report"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/process"
	"github.com/listproxy/listproxy/test/harness/workload"
)

const (
	roleWatchers = "role-watchers"
	// toldWrites is how many changes there are in a second that all are told of.
	toldWrites = 25
	// agentWrites is how many pods change a second where each concerns one node.
	agentWrites = 200
	// writers is how many connections write.
	writers = 4
	// perConnection is how many node agents share one: thousands of handshakes say nothing of watches.
	perConnection = 20
	// opensAtOnce is how many node agents begin at a time: each has a review of its own.
	opensAtOnce = 20
	// settleFor is how long processes are left alone before their memory is read.
	settleFor = 5 * time.Second
)

// measureWatches measures watches and streaming lists.
func measureWatches(ctx context.Context, s settings, r *report.Report) (err error) {
	sc := &watchScene{}
	defer func() { err = errors.Join(err, sc.close()) }()
	if err := sc.open(ctx, s, r.Log); err != nil {
		return err
	}
	r.Say(fmt.Sprintf(watchesIntroduction, s.pods, s.agents))
	for _, measure := range []struct {
		name string
		do   func(context.Context, settings) (*report.Table, error)
	}{
		{"the mix", sc.mix},
		{"its requests", sc.costs},
		{"streaming lists", sc.storm},
		{"events", sc.fanOut},
		{"node agents", sc.nodeAgents},
		{"idle watches", sc.idleWatches},
	} {
		t, err := measure.do(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", measure.name, err)
		}
		r.Add(t)
		r.Log("%s measured", measure.name)
	}
	return nil
}

const watchesIntroduction = `
## Watches

%d pods on %d nodes, in protobuf, over HTTP/2 without compression. kube-apiserver is asked directly, and through listproxy: with
` + "`--watches` and `--consistent-lists=true` (in the mix also with `always`)" + `, and with neither. CPU is that of whole processes.
For the tables of events and of node agents, pods are changed in etcd itself, so that writing them costs kube-apiserver nothing.
`

// watchScene is a control plane with pods, a listproxy that answers watches, one that also proves every
// newest state, and one that does neither.
type watchScene struct {
	scene
	log                func(string, ...any)
	forwarding, always *harness.Proxy
}

func (s *watchScene) open(ctx context.Context, set settings, log func(string, ...any)) (err error) {
	s.log = log
	if err := s.startPlane(ctx, log); err != nil {
		return err
	}
	if err := workload.Fill(ctx, s.cp, workload.Pods{Nodes: set.agents}, set.pods, func(int) {}); err != nil {
		return err
	}
	if err := s.startProxy(ctx, append([]string{"--consistent-lists=true", "--watches", "--debug-pprof"}, set.args...)); err != nil {
		return err
	}
	if s.forwarding, err = s.run(ctx, "--eager", "pods"); err != nil {
		return err
	}
	if s.always, err = s.run(ctx, "--eager", "pods", "--watches", "--consistent-lists=always"); err != nil {
		return err
	}
	if s.limit, err = startChild(roleLimit); err != nil {
		return err
	}
	if s.client, err = startChild(roleWatchers); err != nil {
		return err
	}
	return s.warmUp(ctx)
}

// warmUp has every connection and every code path used once, and waits until listproxy knows all.
func (s *watchScene) warmUp(ctx context.Context) error {
	if _, err := s.warm(ctx, load{Path: list(anyVersion()), Accept: acceptProtobuf}); err != nil {
		return err
	}
	for _, side := range append(s.sides(), s.through("", s.always)) {
		for range 3 {
			if _, err := order(s.client, watchOrder{Open: []string{streamingList}, Server: side.server}); err != nil {
				return err
			}
		}
		if _, err := order(s.client, watchOrder{Close: true}); err != nil {
			return err
		}
	}
	return nil
}

// streamingList is what an informer of all pods begins with.
const streamingList = "/api/v1/pods?watch=true&allowWatchBookmarks=true&sendInitialEvents=true" +
	"&resourceVersionMatch=NotOlderThan&timeoutSeconds=3000"

// sides are those that pods are asked of: straight, and through the listproxy that answers watches.
func (s *watchScene) sides() []newestSide {
	return []newestSide{
		{name: nameKube, server: s.direct, pids: []int{s.apiserver}},
		{name: nameProxy, server: s.proxied, pids: []int{s.apiserver, s.proxy.PID()}},
	}
}

// through is a side of pods that are asked of another listproxy.
func (s *watchScene) through(name string, p *harness.Proxy) newestSide {
	config := p.RESTConfig(s.cp.RESTConfig(controlplane.Admin))
	return newestSide{
		name: name, server: server{URL: config.Host, CA: config.CAData, Token: config.BearerToken},
		pids: []int{s.apiserver, p.PID()},
	}
}

// watching is the path of a watch of pods from the state that a server gives now, as to who lists
// them first.
func (s *watchScene) watching(ctx context.Context, of server, namespace string) (string, error) {
	path := "/api/v1/pods"
	if namespace != "" {
		path = "/api/v1/namespaces/" + namespace + "/pods"
	}
	f, err := fetch(ctx, load{Server: of, Path: path + "?resourceVersion=0&fieldSelector=metadata.name%3Dnone", Accept: acceptJSON})
	if err != nil {
		return "", err
	}
	var none metav1.PartialObjectMetadataList
	if err := json.Unmarshal(f.plain, &none); err != nil {
		return "", fmt.Errorf("GET %s: %w", path, err)
	}
	return path + "?watch=true&allowWatchBookmarks=true&timeoutSeconds=3000&resourceVersion=" + none.ResourceVersion, nil
}

// write changes pods for a time, so many a second, those that it is given, in turn. It does so in
// etcd.
func (s *watchScene) write(ctx context.Context, pods []*corev1.Pod, perSecond, seconds int) error {
	store := workload.NewStore(s.cp)
	defer store.Close()
	jobs := make(chan *corev1.Pod)
	writing, failed := errgroup.WithContext(ctx)
	for range writers {
		writing.Go(func() error {
			for pod := range jobs {
				changed := pod.DeepCopy()
				metav1.SetMetaDataAnnotation(&changed.ObjectMeta, "bench.listproxy.io/at", stamp(time.Now()))
				if err := store.Put(failed, changed); err != nil {
					return err
				}
			}
			return nil
		})
	}
	begun := time.Now()
	for i := range perSecond * seconds {
		poll.Pause(failed, time.Until(begun.Add(time.Duration(i)*time.Second/time.Duration(perSecond))))
		select {
		case jobs <- pods[i%len(pods)]:
		case <-failed.Done():
		}
	}
	close(jobs)
	return writing.Wait()
}

// some returns pods as they are in etcd.
func (s *watchScene) some(ctx context.Context, namespace string, n int) ([]*corev1.Pod, error) {
	pods, err := s.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: int64(n)})
	if err != nil {
		return nil, err
	}
	var all []*corev1.Pod
	for i := range pods.Items {
		pods.Items[i].ResourceVersion = ""
		all = append(all, &pods.Items[i])
	}
	return all, nil
}

// begin has watches opened at a server, and tells why some of these do not come from memory.
func (s *watchScene) begin(at newestSide, paths []string, perConnection, atOnce int) (watchOutcome, error) {
	opened, err := order(s.client, watchOrder{Open: paths, Server: at.server, PerConnection: perConnection, AtOnce: atOnce})
	if at.name != nameKube && at.name != nameLimit && len(opened.Others) > 0 {
		s.log("%s: not from memory: %v", at.name, opened.Others)
	}
	return opened, err
}

// sum of durations.
func sum(all []time.Duration) (total time.Duration) {
	for _, d := range all {
		total += d
	}
	return total
}

// storm has many informers start at once.
func (s *watchScene) storm(ctx context.Context, set settings) (*report.Table, error) {
	t := &report.Table{
		Caption: fmt.Sprintf("%d informers start at once: a streaming list of all %d pods each, on a connection of its own.",
			set.informers, set.pods),
		Head: []string{
			"streaming lists", "kube-apiserver, CPU for a list", "listproxy", "both", "from memory", "refused, then repeated",
			"time, median", "99%", "slowest", "kube-apiserver, peak memory", "listproxy",
		},
	}
	for _, side := range s.sides() {
		for _, pid := range side.pids {
			if err := process.ResetPeak(pid); err != nil {
				return nil, err
			}
		}
		var done watchOutcome
		took, err := process.Used(func() (err error) {
			done, err = s.begin(side, slices.Repeat([]string{streamingList}, set.informers), 1, 0)
			return err
		}, side.pids...)
		if err != nil {
			return nil, err
		}
		if _, err := order(s.client, watchOrder{Close: true}); err != nil {
			return nil, err
		}
		n := time.Duration(set.informers)
		cells := []string{
			side.name, report.Millis(took[0] / n), "", report.Millis(sum(took) / n), percent(done.Hits, set.informers), fmt.Sprint(done.Refused),
			report.Millis(quantile(done.Times, 0.5)), report.Millis(quantile(done.Times, 0.99)), report.Millis(quantile(done.Times, 1)),
		}
		for _, pid := range side.pids {
			_, peak, err := process.Memory(pid)
			if err != nil {
				return nil, err
			}
			cells = append(cells, report.Size(peak))
		}
		if len(took) > 1 {
			cells[2] = report.Millis(took[1] / n)
		}
		t.Add(cells...)
		poll.Pause(ctx, settleFor)
	}
	return t, nil
}

func percent(part, of int) string { return strconv.Itoa(100*part/max(1, of)) + "%" }

// fanOut has many clients hear of the same changes.
func (s *watchScene) fanOut(ctx context.Context, set settings) (*report.Table, error) {
	const namespace = controlplane.TeamA
	pods, err := s.some(ctx, namespace, 10)
	if err != nil {
		return nil, err
	}
	t := &report.Table{
		Caption: fmt.Sprintf("%d clients, each on a connection of its own, watch pods of which %d change a second; "+
			"every client gets every change.", set.watchers, toldWrites),
		Head: []string{
			"events", "delivered", "CPU for a delivered event", "listproxy's part of it", "from sending the change, median", "99%", "from memory",
		},
	}
	sides := append(s.sides(), newestSide{name: nameLimit, pids: []int{s.limit.pid()}})
	for i, side := range sides {
		from := side.server
		if side.name == nameLimit {
			from = s.direct
		}
		path, err := s.watching(ctx, from, namespace)
		if err != nil {
			return nil, err
		}
		if side.name == nameLimit {
			var address bareAddress
			direct := s.direct
			if err := s.limit.call(stored{Path: path, Type: acceptProtobuf, Watch: &direct}, &address); err != nil || address.Error != "" {
				return nil, fmt.Errorf("the limit: %s %w", address.Error, err)
			}
			sides[i].server, side.server = address.Server, address.Server
		}
		changes := toldWrites * set.span
		alone, err := process.Used(func() error { return s.write(ctx, pods, toldWrites, set.span) }, side.pids...)
		if err != nil {
			return nil, err
		}
		opened, err := s.begin(side, slices.Repeat([]string{path}, set.watchers), 1, 0)
		if err != nil {
			return nil, err
		}
		// Each is told what came since the revision, and the connections are there.
		if _, err := order(s.client, watchOrder{Reset: true}); err != nil {
			return nil, err
		}
		poll.Pause(ctx, time.Second)
		if _, err := order(s.client, watchOrder{Reset: true}); err != nil {
			return nil, err
		}
		var heard watchOutcome
		took, err := process.Used(func() error {
			if err := s.write(ctx, pods, toldWrites, set.span); err != nil {
				return err
			}
			heard, err = order(s.client, watchOrder{Await: int64(changes * set.watchers)})
			return err
		}, side.pids...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", side.name, err)
		}
		if _, err := order(s.client, watchOrder{Close: true}); err != nil {
			return nil, err
		}
		n := float64(heard.Events)
		cells := []string{
			side.name, fmt.Sprint(heard.Events), micros(float64(sum(took)-sum(alone)) / n), "",
			report.Millis(heard.Median), report.Millis(heard.High), percent(opened.Hits, set.watchers),
		}
		if side.name == nameProxy {
			cells[3] = micros(float64(took[1]-alone[1]) / n)
		}
		t.Add(cells...)
	}
	return t, nil
}

func micros(nanoseconds float64) string { return fmt.Sprintf("%.1f µs", nanoseconds/1e3) }

// nodeAgents has one client for each node, and changes that concern one of them each.
func (s *watchScene) nodeAgents(ctx context.Context, set settings) (*report.Table, error) {
	pods, err := s.some(ctx, "", set.pods)
	if err != nil {
		return nil, err
	}
	t := &report.Table{
		Caption: fmt.Sprintf("%d node agents (spec.nodeName), %d on a connection, and %d changes a second.",
			set.agents, perConnection, agentWrites),
		Head: []string{
			"node agents", "kube-apiserver, CPU for a change", "without any watch", "listproxy", "without any watch",
			"for the watches, both", "from sending the change, median", "99%", "from memory",
		},
	}
	for _, side := range s.sides() {
		alone, err := process.Used(func() error { return s.write(ctx, pods, agentWrites, set.span) }, side.pids...)
		if err != nil {
			return nil, err
		}
		path, err := s.watching(ctx, side.server, "")
		if err != nil {
			return nil, err
		}
		paths := make([]string, set.agents)
		for i := range paths {
			paths[i] = path + "&fieldSelector=spec.nodeName%3D" + workload.Pods{Nodes: set.agents}.Node(i)
		}
		opened, err := s.begin(side, paths, perConnection, opensAtOnce)
		if err != nil {
			return nil, err
		}
		poll.Pause(ctx, settleFor)
		if _, err := order(s.client, watchOrder{Reset: true}); err != nil {
			return nil, err
		}
		var heard watchOutcome
		took, err := process.Used(func() error {
			if err := s.write(ctx, pods, agentWrites, set.span); err != nil {
				return err
			}
			heard, err = order(s.client, watchOrder{Await: int64(agentWrites * set.span)})
			return err
		}, side.pids...)
		if err != nil {
			return nil, err
		}
		if _, err := order(s.client, watchOrder{Close: true}); err != nil {
			return nil, err
		}
		n := time.Duration(agentWrites * set.span)
		cells := []string{
			side.name, report.Millis(took[0] / n), report.Millis(alone[0] / n), "", "", report.Millis((sum(took) - sum(alone)) / n),
			report.Millis(heard.Median), report.Millis(heard.High), percent(opened.Hits, set.agents),
		}
		if len(took) > 1 {
			cells[3], cells[4] = report.Millis(took[1]/n), report.Millis(alone[1]/n)
		}
		t.Add(cells...)
		poll.Pause(ctx, settleFor)
	}
	return t, nil
}

// idleWatches compares the memory of watches that are told nothing.
func (s *watchScene) idleWatches(ctx context.Context, set settings) (*report.Table, error) {
	t := &report.Table{
		Caption: fmt.Sprintf("%d watches of a namespace where nothing changes, each on a connection of its own.", set.watchers),
		Head:    []string{"idle watches", "memory of one: heap", "stacks", "from memory"},
	}
	path, err := s.watching(ctx, s.direct, metav1.NamespaceSystem)
	if err != nil {
		return nil, err
	}
	var address bareAddress
	direct := s.direct
	if err := s.limit.call(stored{Path: path, Type: acceptProtobuf, Watch: &direct}, &address); err != nil || address.Error != "" {
		return nil, fmt.Errorf("the limit: %s %w", address.Error, err)
	}
	admin := server{URL: s.proxy.AdminURL()}
	for _, side := range []struct {
		newestSide
		profiles server
	}{
		{newestSide{name: nameKube, server: s.direct, pids: []int{s.apiserver}}, s.direct},
		{newestSide{name: nameProxy, server: s.proxied, pids: []int{s.proxy.PID()}}, admin},
		{newestSide{name: nameLimit, server: address.Server, pids: []int{s.limit.pid()}}, address.Server},
	} {
		poll.Pause(ctx, settleFor)
		heap, stacks, err := inUse(ctx, side.profiles)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", side.name, err)
		}
		opened, err := s.begin(side.newestSide, slices.Repeat([]string{path}, set.watchers), 1, 0)
		if err != nil {
			return nil, err
		}
		poll.Pause(ctx, settleFor)
		heapAfter, stacksAfter, err := inUse(ctx, side.profiles)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", side.name, err)
		}
		if _, err := order(s.client, watchOrder{Close: true}); err != nil {
			return nil, err
		}
		of := int64(set.watchers)
		t.Add(side.name, report.Size((heapAfter-heap)/of), report.Size((stacksAfter-stacks)/of),
			percent(opened.Hits, set.watchers))
	}
	return t, nil
}
