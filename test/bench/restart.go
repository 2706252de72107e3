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

// pollersPer is for how many informers there is a poller, which lists once a second.
const pollersPer = 2

// catchUp is how long informers may need to know the true state. Directly, a hundred need minutes: all
// list again, and a kube-apiserver that has just started ends the watches that fall behind.
const catchUp = 10 * time.Minute

// restarts measures a restart of kube-apiserver, alone and as one of two behind a TCP balancer, while
// nothing is written and while pods are: whole lists that reach it, and whether lists come from memory.
// It fails if an informer does not end with the true state.
func restarts(ctx context.Context, b *bench) error {
	if err := b.fill(ctx); err != nil {
		return err
	}
	t := &table{caption: fmt.Sprintf("kube-apiserver is ended with SIGTERM and started again before %d informers of %d pods and %d pollers, who list all at "+
		"resourceVersion=0 once a second; written: %d pods change a second. Counted is from the end of the old process to %d s after the new one is ready. "+
		"Answers are the pollers'; refused is what failed. Whole lists are those of informers and of listproxy: streaming lists, lists without a limit and a selector, "+
		"and newest ones that are read page by page.",
		b.settings.crowd, b.settings.pods, max(1, b.settings.crowd/pollersPer), b.settings.changes, b.settings.seconds)}
	balancer, err := hop.StartBalancer()
	if err != nil {
		return err
	}
	defer balancer.Close()
	balancer.Add(strings.TrimPrefix(b.cp.URL(), "https://"))
	for _, name := range []string{"alone", "one of two"} {
		if name == "one of two" {
			second, err := b.cp.AddAPIServer(ctx, "")
			if err != nil {
				return err
			}
			balancer.Add(strings.TrimPrefix(second.URL(), "https://"))
		}
		for i, asked := range []string{name + ", quiet", name + ", written"} {
			direct, proxied := &result{asked: asked, of: straight}, &result{asked: asked, of: "listproxy"}
			for _, r := range []*result{direct, proxied} {
				if err := b.restart(ctx, "https://"+balancer.Address(), i == 1, r); err != nil {
					return fmt.Errorf("%s: %s: %w", asked, r.of, err)
				}
				b.log("%s, %s: %d whole lists, %d of %d lists from memory", asked, r.of, r.lists, r.hits, r.answers)
			}
			t.add(direct, proxied)
		}
	}
	b.report(t)
	return nil
}

// restart measures one restart at the side that the row names.
func (b *bench) restart(ctx context.Context, upstream string, writing bool, r *result) (err error) {
	before, err := hop.Start(upstream, b.cp.CA(), hop.Odd{})
	if err != nil {
		return err
	}
	defer before.Close()
	var whole atomic.Int64
	before.OnAnswer(func(resp *http.Response) {
		if resp.StatusCode == http.StatusOK && isWhole(resp.Request) && resp.Request.UserAgent() != userAgent {
			whole.Add(1)
		}
	})
	cfg := before.RESTConfig(b.cp.RESTConfig(controlplane.Admin))
	if r.of != straight {
		p, err := b.start(ctx, b.binary, before.RESTConfig(b.cp.RESTConfig(controlplane.Feed)), "--eager", "pods", "--watches", "--consistent-lists=true")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.stop()) }()
		cfg = p.RESTConfig(b.cp.RESTConfig(controlplane.Admin))
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	all, err := b.informers(ctx, cfg)
	if err != nil {
		return err
	}
	pods, err := b.some(ctx, controlplane.TeamA, 10)
	if err != nil {
		return err
	}

	whole.Store(0)
	load, stop := context.WithCancel(ctx)
	var working sync.WaitGroup
	defer working.Wait()
	defer stop()
	var wrote error
	if writing {
		working.Go(func() { _, wrote = b.change(load, pods, b.settings.changes, 0) })
	}
	if err := b.poll(load, cfg, &working, r); err != nil {
		return err
	}
	if err := b.cp.First.Stop(); err != nil {
		return err
	}
	if err := b.cp.First.Start(ctx); err != nil {
		return err
	}
	clock.Sleep(ctx, time.Duration(b.settings.seconds)*time.Second)
	stop()
	working.Wait()
	r.lists = int(whole.Load())
	if wrote != nil {
		return wrote
	}
	return b.informed(ctx, all)
}

// informed waits until all informers know all pods as they are.
func (b *bench) informed(ctx context.Context, all []cache.SharedIndexInformer) error {
	now, err := b.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var truth []ask.Identity
	for _, pod := range now.Items {
		truth = append(truth, ask.IdentityOf(&pod))
	}
	want := ask.Versions(truth)
	for i, informer := range all {
		if err := poll.Try(ctx, catchUp, lookEvery, fmt.Sprintf("informer %d", i), func() error {
			if got := ask.Versions(informers.Stored(informer)); !maps.Equal(got, want) {
				return fmt.Errorf("it knows %d pods, not all of %d as they are", len(got), len(want))
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// leastPage is how many objects a page has, at least, of a state that is loaded page by page. Before it
// loads, a feed reads a list of fewer, from which it learns the form (snapshot/learn.go).
const leastPage = 50

// isWhole says whether a request is for the whole state of pods, or for the first page of the newest.
func isWhole(r *http.Request) bool {
	q := r.URL.Query()
	if r.Method != http.MethodGet || r.URL.Path != "/api/v1/pods" {
		return false
	}
	if q.Get("watch") == "true" {
		return q.Get("sendInitialEvents") == "true"
	}
	if q.Has("continue") || q.Has("fieldSelector") || q.Has("labelSelector") {
		return false
	}
	if limit, err := strconv.Atoi(q.Get("limit")); err == nil {
		return limit >= leastPage && !q.Has("resourceVersion")
	}
	return true
}

// informers starts informers, each over a connection of its own, which keep nothing of a pod but its
// revision, and waits until all know all.
func (b *bench) informers(ctx context.Context, cfg *rest.Config) (all []cache.SharedIndexInformer, err error) {
	var synced []cache.InformerSynced
	for range b.settings.crowd {
		own := rest.CopyConfig(cfg)
		own.UserAgent = "informer"
		own.Dial = (&net.Dialer{}).DialContext // client-go shares connections of those that have none
		informer := informers.New(own, "typed", corev1.SchemeGroupVersion.WithResource("pods"), false, "")
		if err := informer.SetTransform(func(object any) (any, error) {
			if pod, ok := object.(*corev1.Pod); ok {
				object = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion}}
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
	waiting, stop := context.WithTimeout(ctx, catchUp)
	defer stop()
	if !cache.WaitForCacheSync(waiting.Done(), synced...) {
		return nil, fmt.Errorf("not all informers have a first state within %v", catchUp)
	}
	return all, nil
}

// poll has pollers list until ctx ends.
func (b *bench) poll(ctx context.Context, cfg *rest.Config, working *sync.WaitGroup, r *result) error {
	q := in("", podsPath+ask.AnyVersion, false, goClients)[0]
	var mu sync.Mutex
	for range max(1, b.settings.crowd/pollersPer) {
		over, err := newConnection(cfg, false)
		if err != nil {
			return err
		}
		working.Go(func() {
			for range poll.Ticks(ctx, time.Second) {
				begun := time.Now()
				one, _, err := q.once(ctx, over, cfg)
				one.took = time.Since(begun)
				mu.Lock()
				switch {
				case ctx.Err() != nil: // cut off
				case err != nil:
					r.refused++
				default:
					r.take(one)
				}
				mu.Unlock()
			}
		})
	}
	return nil
}
