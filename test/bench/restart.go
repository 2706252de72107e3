package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/informers"
	"github.com/listproxy/listproxy/test/harness/poll"
)

const (
	// informersPerPoller is the number of informers for each poller.
	informersPerPoller = 2
	// catchUpTime is the time in which informers must reach the true state. At kube-apiserver, a hundred need minutes: all list
	// again, and a kube-apiserver that has just started ends the watches that fall behind.
	catchUpTime = 10 * time.Minute
	// headStart is the time for which pollers list before the restart, so that listproxy knows their right to list.
	headStart = 2 * time.Second
)

// runRestart measures how many whole lists reach a kube-apiserver that restarts, and how many lists come from memory. It
// restarts a kube-apiserver that is alone, and then one of two behind a TCP balancer; each time without and with writes of
// pods. It fails if an informer does not reach the true state.
func runRestart(ctx context.Context, b *bench) error {
	t := &table{caption: fmt.Sprintf("kube-apiserver is ended with SIGTERM and started again before %d informers of %d pods and %d pollers, "+
		"who list all at resourceVersion=0 once a second; written: %d pods change a second. Counted is from two seconds before the end of the old process "+
		"to %d s after the new one is ready. Answers are the pollers'; refused is what failed. Whole lists are those of informers and of "+
		"listproxy: streaming lists, lists without a limit and a selector, and newest ones that are read page by page.",
		b.settings.crowd, b.settings.pods, b.pollers(), changesPerSecond, b.settings.seconds)}
	balancer, err := hop.StartBalancer()
	if err != nil {
		return err
	}
	defer balancer.Close()
	balancer.Add(strings.TrimPrefix(b.cp.URL(), "https://"))
	if err := b.restartQuietAndWritten(ctx, "alone", balancer, t); err != nil {
		return err
	}
	second, err := b.cp.AddAPIServer(ctx, "")
	if err != nil {
		return err
	}
	balancer.Add(strings.TrimPrefix(second.URL(), "https://"))
	if err := b.restartQuietAndWritten(ctx, "one of two", balancer, t); err != nil {
		return err
	}
	b.report(t)
	return nil
}

func (b *bench) pollers() int { return max(1, b.settings.crowd/informersPerPoller) }

// restartQuietAndWritten adds the rows of two restarts at each side: without and with writes of pods.
func (b *bench) restartQuietAndWritten(ctx context.Context, name string, balancer *hop.Balancer, t *table) error {
	for _, load := range []struct {
		name       string
		writesPods bool
	}{
		{name: name + ", quiet"},
		{name: name + ", written", writesPods: true},
	} {
		rows := []*row{{request: load.name, side: direct.name}, {request: load.name, side: "listproxy"}}
		for _, r := range rows {
			if err := b.restart(ctx, "https://"+balancer.Address(), r, load.writesPods); err != nil {
				return fmt.Errorf("%s: %s: %w", load.name, r.side, err)
			}
			b.log("%s, %s: %d whole lists, %d of %d lists from memory", load.name, r.side, r.wholeLists, r.hits, r.answers)
		}
		t.add(rows...)
	}
	return nil
}

// restart measures one restart at the side that r names, while pods are written or not. All requests to kube-apiserver pass a
// [hop.Hop], a proxy of the tests, which counts the whole lists among them.
func (b *bench) restart(ctx context.Context, upstream string, r *row, writesPods bool) (err error) {
	counter, err := hop.Start(upstream, b.cp.CA(), hop.Odd{})
	if err != nil {
		return err
	}
	defer counter.Close()
	var wholeLists atomic.Int64
	counter.OnAnswer(func(resp *http.Response) {
		isPoller := resp.Request.UserAgent() == userAgent
		if resp.StatusCode == http.StatusOK && isWhole(resp.Request) && !isPoller {
			wholeLists.Add(1)
		}
	})
	cfg := counter.RESTConfig(b.cp.RESTConfig(controlplane.Admin))
	if r.side != direct.name {
		p, err := b.start(ctx, b.binary, counter.RESTConfig(b.cp.RESTConfig(controlplane.Feed)),
			"--eager", "pods", "--watches", "--consistent-lists=true")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.stopLast()) }()
		cfg = p.RESTConfig(b.cp.RESTConfig(controlplane.Admin))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	crowd, err := b.startInformers(ctx, cfg)
	if err != nil {
		return err
	}
	wholeLists.Store(0) // the lists of informers that start do not count
	if err := b.restartUnderLoad(ctx, cfg, r, writesPods); err != nil {
		return err
	}
	r.wholeLists = int(wholeLists.Load())
	return b.awaitInformers(ctx, crowd)
}

// restartUnderLoad restarts kube-apiserver while pollers list pods. If writesPods, pods are written as well.
func (b *bench) restartUnderLoad(ctx context.Context, cfg *rest.Config, r *row, writesPods bool) error {
	pods, err := b.readPods(ctx, controlplane.TeamA, changingPods)
	if err != nil {
		return err
	}
	loadCtx, stopLoad := context.WithCancel(ctx)
	var loading errgroup.Group
	defer func() { _ = loading.Wait() }()
	defer stopLoad()
	if writesPods {
		loading.Go(func() error {
			_, err := b.changePods(loadCtx, pods, changesPerSecond, unlimited)
			return err
		})
	}
	if err := b.startPollers(loadCtx, cfg, &loading, r); err != nil {
		return err
	}
	clock.Sleep(ctx, headStart)
	if err := b.cp.First.Stop(); err != nil {
		return err
	}
	if err := b.cp.First.Start(ctx); err != nil {
		return err
	}
	clock.Sleep(ctx, time.Duration(b.settings.seconds)*time.Second)
	stopLoad()
	return loading.Wait()
}

// awaitInformers waits until each informer of a crowd has the true state.
func (b *bench) awaitInformers(ctx context.Context, crowd []cache.SharedIndexInformer) error {
	list, err := b.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var pods []ask.Identity
	for _, pod := range list.Items {
		pods = append(pods, ask.IdentityOf(&pod))
	}
	want := ask.Versions(pods)
	for i, informer := range crowd {
		err := poll.Try(ctx, catchUpTime, pollInterval, fmt.Sprintf("informer %d", i), func() error {
			if got := ask.Versions(informers.Stored(informer)); !maps.Equal(got, want) {
				return fmt.Errorf("its %d pods are not the %d true ones", len(got), len(want))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// minLoadPage is the least limit of a first page that counts as a whole list. listproxy's loads have larger pages. Before a
// load, listproxy lists a few objects to learn their form (snapshot/source/learn.go): that list has a smaller limit, and does
// not count.
const minLoadPage = 50

// isWhole reports whether a request makes kube-apiserver give out the whole state of pods. It is one of these:
//   - a streaming list of all pods
//   - a list of all pods without a limit
//   - the first page of a consistent list of all pods
func isWhole(r *http.Request) bool {
	query := r.URL.Query()
	if r.Method != http.MethodGet || r.URL.Path != podsPath {
		return false
	}
	if query.Get("watch") == "true" {
		return query.Get("sendInitialEvents") == "true"
	}
	if query.Has("continue") || query.Has("fieldSelector") || query.Has("labelSelector") {
		return false
	}
	limit, err := strconv.Atoi(query.Get("limit"))
	if hasNoLimit := err != nil; hasNoLimit {
		return true
	}
	isConsistent := !query.Has("resourceVersion")
	return isConsistent && limit >= minLoadPage
}

// keepIdentity is a [cache.TransformFunc] that saves memory: it returns a pod with the fields of its identity only.
func keepIdentity(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
	}}, nil
}

// startInformers starts a crowd of informers, each over its own connection, and waits until all have synced.
func (b *bench) startInformers(ctx context.Context, cfg *rest.Config) (crowd []cache.SharedIndexInformer, err error) {
	var synced []cache.InformerSynced
	for range b.settings.crowd {
		own := rest.CopyConfig(cfg)
		own.UserAgent = "informer"
		own.Dial = (&net.Dialer{}).DialContext // without it, client-go would share connections
		informer := informers.NewOfPods(own, informers.Options{})
		if err := informer.SetTransform(keepIdentity); err != nil {
			return nil, err
		}
		if err := informers.Start(ctx, informer); err != nil {
			return nil, err
		}
		crowd = append(crowd, informer)
		synced = append(synced, informer.HasSynced)
	}
	syncCtx, cancel := context.WithTimeout(ctx, catchUpTime)
	defer cancel()
	if !cache.WaitForCacheSync(syncCtx.Done(), synced...) {
		return nil, fmt.Errorf("not all informers have synced within %v", catchUpTime)
	}
	return crowd, nil
}

// startPollers starts pollers in a group. They list until ctx ends, and add their answers to a row.
func (b *bench) startPollers(ctx context.Context, cfg *rest.Config, group *errgroup.Group, r *row) error {
	q := newRequest(podsWith+ask.AnyVersion, clientGo)
	var mu sync.Mutex // guards r
	for range b.pollers() {
		connection, err := newConnection(cfg, http2)
		if err != nil {
			return err
		}
		group.Go(func() error {
			for range poll.Ticks(ctx, time.Second) {
				begun := time.Now()
				a, _, err := q.sendOnce(ctx, connection, cfg)
				a.took = time.Since(begun)
				if ctx.Err() != nil {
					break // cut off, not failed
				}
				mu.Lock()
				if err != nil {
					r.refusals++
				} else {
					r.add(a)
				}
				mu.Unlock()
			}
			return nil
		})
	}
	return nil
}
