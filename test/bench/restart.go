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

// informersPerPoller is the number of informers for each poller.
const informersPerPoller = 2

// catchUpTime is the time that informers have to reach the true state. Directly, a hundred need minutes: all list again, and
// a kube-apiserver that has just started ends the watches that fall behind.
const catchUpTime = 10 * time.Minute

// headStart is the time for which pollers list before the restart, so that listproxy knows their right to list.
const headStart = 2 * time.Second

// restarts measures how many whole lists reach a kube-apiserver that restarts, and how many lists come from memory. It does
// so with one kube-apiserver and with two behind a TCP balancer, without and with writes of pods. It fails if an informer
// does not reach the true state.
func restarts(ctx context.Context, b *bench) error {
	if err := b.fillPods(ctx); err != nil {
		return err
	}
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
	}{{name: "quiet"}, {name: "written", writesPods: true}} {
		request := name + ", " + load.name
		rows := []*result{{request: request, side: direct.name}, {request: request, side: "listproxy"}}
		for _, r := range rows {
			if err := b.restart(ctx, "https://"+balancer.Address(), r, load.writesPods); err != nil {
				return fmt.Errorf("%s: %s: %w", request, r.side, err)
			}
			b.log("%s, %s: %d whole lists, %d of %d lists from memory", request, r.side, r.wholeLists, r.hits, r.answers)
		}
		t.add(rows...)
	}
	return nil
}

// restart measures one restart at the side of the row r, while pods are written or not.
func (b *bench) restart(ctx context.Context, upstream string, r *result, writesPods bool) (err error) {
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
	all, err := b.startInformers(ctx, cfg)
	if err != nil {
		return err
	}
	wholeLists.Store(0) // without those of informers that start
	if err := b.restartUnderLoad(ctx, cfg, r, writesPods); err != nil {
		return err
	}
	r.wholeLists = int(wholeLists.Load())
	return b.awaitInformers(ctx, all)
}

// restartUnderLoad restarts kube-apiserver while pollers list, and pods are written or not.
func (b *bench) restartUnderLoad(ctx context.Context, cfg *rest.Config, r *result, writesPods bool) error {
	pods, err := b.readPods(ctx, controlplane.TeamA, changingPods)
	if err != nil {
		return err
	}
	loadCtx, stopLoad := context.WithCancel(ctx)
	var loading sync.WaitGroup
	defer loading.Wait()
	defer stopLoad()
	var writeErr error
	if writesPods {
		loading.Go(func() { _, writeErr = b.changePods(loadCtx, pods, changesPerSecond, unlimited) })
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
	loading.Wait()
	return writeErr
}

// awaitInformers waits until all informers have the true state.
func (b *bench) awaitInformers(ctx context.Context, all []cache.SharedIndexInformer) error {
	list, err := b.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var truth []ask.Identity
	for _, pod := range list.Items {
		truth = append(truth, ask.IdentityOf(&pod))
	}
	want := ask.Versions(truth)
	for i, informer := range all {
		if err := poll.Try(ctx, catchUpTime, pollInterval, fmt.Sprintf("informer %d", i), func() error {
			if got := ask.Versions(informers.Stored(informer)); !maps.Equal(got, want) {
				return fmt.Errorf("its %d pods are not the %d true ones", len(got), len(want))
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// minLoadPage is the smallest limit of a page with which listproxy loads a state. Before a load, a feed lists fewer objects
// as a sample (snapshot/source/learn.go).
const minLoadPage = 50

// isWhole reports whether a request is for the whole state of pods, or for the first page of a consistent list.
func isWhole(r *http.Request) bool {
	q := r.URL.Query()
	if r.Method != http.MethodGet || r.URL.Path != podsPath {
		return false
	}
	if q.Get("watch") == "true" {
		return q.Get("sendInitialEvents") == "true"
	}
	if q.Has("continue") || q.Has("fieldSelector") || q.Has("labelSelector") {
		return false
	}
	if limit, err := strconv.Atoi(q.Get("limit")); err == nil {
		return limit >= minLoadPage && !q.Has("resourceVersion")
	}
	return true
}

// startInformers starts a crowd of informers, each over its own connection, and waits until all have synced. To save memory,
// they keep only the identities of pods.
func (b *bench) startInformers(ctx context.Context, cfg *rest.Config) (all []cache.SharedIndexInformer, err error) {
	var synced []cache.InformerSynced
	for range b.settings.crowd {
		own := rest.CopyConfig(cfg)
		own.UserAgent = "informer"
		own.Dial = (&net.Dialer{}).DialContext // without it, client-go would share connections
		informer := informers.NewOfPods(own, informers.Options{})
		if err := informer.SetTransform(func(object any) (any, error) {
			if pod, ok := object.(*corev1.Pod); ok {
				object = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
					Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
				}}
			}
			return object, nil
		}); err != nil {
			return nil, err
		}
		if err := informers.Start(ctx, informer); err != nil {
			return nil, err
		}
		all, synced = append(all, informer), append(synced, informer.HasSynced)
	}
	syncCtx, cancel := context.WithTimeout(ctx, catchUpTime)
	defer cancel()
	if !cache.WaitForCacheSync(syncCtx.Done(), synced...) {
		return nil, fmt.Errorf("not all informers have synced within %v", catchUpTime)
	}
	return all, nil
}

// startPollers starts pollers in a group, which list until ctx ends and add their answers to a result.
func (b *bench) startPollers(ctx context.Context, cfg *rest.Config, group *sync.WaitGroup, r *result) error {
	q := fromAnywhere("", podsWith+ask.AnyVersion, clientGo)[0]
	var mu sync.Mutex // guards r
	for range b.pollers() {
		connection, err := newConnection(cfg, false)
		if err != nil {
			return err
		}
		group.Go(func() {
			for range poll.Ticks(ctx, time.Second) {
				begun := time.Now()
				a, _, err := q.sendOnce(ctx, connection, cfg)
				a.took = time.Since(begun)
				if ctx.Err() != nil {
					return // cut off, not failed
				}
				mu.Lock()
				if err != nil {
					r.refusals++
				} else {
					r.add(a)
				}
				mu.Unlock()
			}
		})
	}
	return nil
}
