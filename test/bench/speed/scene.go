package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/process"
	"github.com/listproxy/listproxy/test/harness/workload"
)

const (
	// podsPer is how many pods run on a node.
	podsPer = 30
	// warmFor bounds the wait for an answer from memory, and warmEvery is how often it is asked for.
	warmFor   = time.Minute
	warmEvery = 100 * time.Millisecond
)

// scene is a control plane with pods, listproxy before it, and the limit beside it.
type scene struct {
	cp      *controlplane.ControlPlane
	binary  string // listproxy as it is delivered
	running []*harness.Proxy
	proxy   *harness.Proxy
	limit   *child
	client  *child
	kube    kubernetes.Interface // straight to kube-apiserver

	direct, proxied, bare server
	apiserver             int // pid
	start                 started
}

// started is what the start of listproxy took.
type started struct {
	ready time.Duration // from nothing to ready, with all pods
	proxy time.Duration // CPU
	kube  time.Duration // CPU of kube-apiserver
}

// startPlane builds listproxy, starts a control plane, and finds the process of its API server.
func (s *scene) startPlane(ctx context.Context, log func(string, ...any)) (err error) {
	if s.binary, err = harness.BuildPlainProxy(ctx); err != nil {
		return err
	}
	if s.cp, err = controlplane.Start(ctx, controlplane.Options{Log: func(line string) { log("%s", line) }}); err != nil {
		return err
	}
	if s.kube, err = kubernetes.NewForConfig(s.cp.RESTConfig(controlplane.Admin)); err != nil {
		return err
	}
	s.apiserver, err = s.cp.APIServerPID()
	return err
}

// run starts a listproxy.
func (s *scene) run(ctx context.Context, args ...string) (*harness.Proxy, error) {
	p, err := harness.StartProxy(ctx, harness.ProxyOptions{
		Upstream: s.cp.RESTConfig(controlplane.Feed), Binary: s.binary, Args: append([]string{"--log-level", "info"}, args...),
	})
	if err == nil {
		s.running = append(s.running, p)
	}
	return p, err
}

// openScene starts everything with so many pods. It must be closed, also after an error.
func openScene(ctx context.Context, pods int, args []string, log func(string, ...any)) (_ *scene, err error) {
	s := &scene{}
	if err := s.startPlane(ctx, log); err != nil {
		return s, err
	}
	begun := time.Now()
	if err := workload.Fill(ctx, s.cp, nodesFor(pods), pods, func(int) {}); err != nil {
		return s, err
	}
	log("%d pods written in %v", pods, time.Since(begun).Round(time.Second))
	if err := s.startProxy(ctx, args); err != nil {
		return s, err
	}
	log("listproxy ready after %v", s.start.ready.Round(time.Millisecond))
	if s.limit, err = startChild(roleLimit); err != nil {
		return s, err
	}
	var address bareAddress
	if err := s.limit.call(stored{}, &address); err != nil {
		return s, err
	}
	s.bare = address.Server
	s.client, err = startChild(roleClient)
	return s, err
}

func nodesFor(pods int) workload.Pods { return workload.Pods{Nodes: pods/podsPer + 1} }

func (s *scene) startProxy(ctx context.Context, args []string) error {
	begun := time.Now()
	used, err := process.Used(func() (err error) {
		s.proxy, err = s.run(ctx, append([]string{"--eager", "pods"}, args...)...)
		s.start.ready = time.Since(begun)
		return err
	}, s.apiserver)
	if err != nil {
		return err
	}
	s.start.kube = used[0]
	if s.start.proxy, err = process.CPU(s.proxy.PID()); err != nil {
		return err
	}
	direct := s.cp.RESTConfig(controlplane.Admin)
	proxied := s.proxy.RESTConfig(direct)
	s.direct = server{URL: direct.Host, CA: direct.CAData, Token: direct.BearerToken}
	s.proxied = server{URL: proxied.Host, CA: proxied.CAData, Token: proxied.BearerToken}
	return nil
}

func (s *scene) close() error {
	var err error
	for _, c := range []*child{s.client, s.limit} {
		if c != nil {
			c.stop()
		}
	}
	for _, p := range s.running {
		err = errors.Join(err, p.Stop())
	}
	if s.cp != nil {
		s.cp.Stop()
	}
	return err
}

// look learns what there is to ask for.
func (s *scene) look(ctx context.Context, pods, page int) (state, error) {
	half, err := s.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{Limit: int64(max(1, pods/2))})
	if err != nil {
		return state{}, fmt.Errorf("list pods: %w", err)
	}
	_, start, ok := policy.DecodeContinue(half.Continue)
	if len(half.Items) == 0 || !ok {
		return state{}, errors.New("there are too few pods: at least 2")
	}
	st := state{pods: pods, page: page, start: start, name: half.Items[0].Name, nodes: nodesFor(pods)}
	return st, s.refresh(ctx, &st)
}

// refresh learns the newest revision: an older one leaves the history after a while.
func (s *scene) refresh(ctx context.Context, st *state) error {
	none, err := s.kube.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=~none"})
	if err != nil {
		return fmt.Errorf("list no pods: %w", err)
	}
	revision, err := strconv.ParseUint(none.ResourceVersion, 10, 64)
	if err != nil {
		return fmt.Errorf("list no pods: %w", err)
	}
	st.revision, st.middle = none.ResourceVersion, policy.EncodeContinue(revision, st.start)
	// The feed may learn only now that it has come so far; both representations have one.
	for _, accept := range []string{acceptJSON, acceptProtobuf} {
		q := exactly(st.revision, 0)
		q.Set("fieldSelector", "metadata.name="+st.name)
		if _, err := s.warm(ctx, load{Path: list(q), Accept: accept}); err != nil {
			return err
		}
	}
	return nil
}

// warm waits until listproxy answers a request from memory, and returns the answer.
func (s *scene) warm(ctx context.Context, l load) (fetched, error) {
	l.Server = s.proxied
	for begun := time.Now(); ; {
		f, err := fetch(ctx, l)
		switch {
		case err != nil:
			return f, fmt.Errorf("listproxy: %w", err)
		case strings.HasPrefix(f.status, "listproxy; hit"):
			return f, nil
		case time.Since(begun) > warmFor:
			return f, fmt.Errorf("GET %s: not from memory within %v but %q", l.Path, warmFor, f.status)
		}
		if err := pause(ctx, warmEvery); err != nil {
			return f, err
		}
	}
}

// prepare makes a row's request be answered from memory, holds the answer against
// kube-apiserver's, gives the limit what it has to write, and returns how many bytes that is: what
// kube-apiserver sent, which has compressed it with gzip -1 where it was asked for that.
func (s *scene) prepare(ctx context.Context, r row) (int64, error) {
	l := load{Path: r.path, Accept: r.accept, Gzip: r.gzip, HTTP1: r.http1}
	ours, err := s.warm(ctx, l)
	if err != nil {
		return 0, err
	}
	// The newest state of the two may not be the same: this is what listproxy's was.
	if l.Path, err = exactlyAs(l.Path, ours); err != nil {
		return 0, err
	}
	l.Server = s.direct
	theirs, err := fetch(ctx, l)
	if err != nil {
		return 0, fmt.Errorf("kube-apiserver: %w", err)
	}
	if !bytes.Equal(ours.plain, theirs.plain) || ours.kind != theirs.kind || ours.encoding != theirs.encoding {
		return 0, fmt.Errorf("GET %s (%s): listproxy's answer of %d bytes is not kube-apiserver's of %d",
			r.path, r.form(), len(ours.plain), len(theirs.plain))
	}
	var address bareAddress
	err = s.limit.call(stored{Path: barePath(r), Type: theirs.kind, Encoding: theirs.encoding, Body: theirs.sent}, &address)
	return int64(len(theirs.sent)), err
}

// barePath is where the limit has a row's answer.
func barePath(r row) string {
	return "/" + strings.NewReplacer(" ", "-", ",", "", "%", "").Replace(r.name+"/"+r.form())
}

// contenders in the order of the table's columns.
func (s *scene) contenders() []contender {
	return []contender{
		{name: nameLimit, server: s.bare, pid: s.limit.pid(), share: 1},
		{name: nameProxy, server: s.proxied, pid: s.proxy.PID(), share: 1, hit: true},
		{name: nameKube, server: s.direct, pid: s.apiserver, share: 0.2},
	}
}

// load is a row's request to a contender.
func (s *scene) load(c contender, r row) load {
	l := load{Path: r.path, Accept: r.accept, Gzip: r.gzip, HTTP1: r.http1}
	if c.name == nameLimit {
		l.Path = barePath(r)
	}
	return l
}

// The contenders' names.
const (
	nameLimit = "bare handler"
	nameProxy = "listproxy"
	nameKube  = "kube-apiserver"
)

// quietTemp makes what is made in a temporary directory vanish with the program.
func quietTemp() (remove func(), err error) {
	dir, err := os.MkdirTemp("", "listproxy-bench-")
	if err != nil {
		return nil, err
	}
	return func() { _ = os.RemoveAll(dir) }, os.Setenv("TMPDIR", dir)
}
