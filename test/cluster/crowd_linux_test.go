package cluster_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/informers"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// crowd is an informer and clients that poll, page and write, all at one server.
type crowd struct {
	informer cache.SharedIndexInformer

	mu       sync.Mutex
	requests map[string]int // by what they do
	failures []string
}

// whileClientsWork runs a crowd at listproxy, and one at kube-apiserver, while disturb runs. No request may fail at listproxy,
// but for errors that contain one of the tolerated texts. In the end both informers must have the same pods.
func whileClientsWork(t *testing.T, through, direct *rest.Config, disturb func(), tolerated ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients errgroup.Group
	proxied, control := startCrowd(ctx, t, through, &clients), startCrowd(ctx, t, direct, &clients)
	disturb()
	poll.Until(t, patience, "both informers have the same pods", func() bool { return maps.Equal(proxied.stored(), control.stored()) })
	cancel()
	_ = clients.Wait()
	t.Logf("through listproxy: %v, %d failed", proxied.requests, len(proxied.failures))
	t.Logf("directly: %v, %d failed", control.requests, len(control.failures))
	unexpected := slices.DeleteFunc(proxied.failures, func(failure string) bool {
		return slices.ContainsFunc(tolerated, func(text string) bool { return strings.Contains(failure, text) })
	})
	if len(unexpected) > 0 {
		t.Errorf("%d requests failed through listproxy, and %d directly; the first: %s", len(unexpected), len(control.failures), unexpected[0])
	}
}

// startCrowd starts a crowd, which works until ctx ends, and waits until its informer has synced.
func startCrowd(ctx context.Context, t *testing.T, cfg *rest.Config, clients *errgroup.Group) *crowd {
	t.Helper()
	c := &crowd{requests: map[string]int{}}
	client, err := kubernetes.NewForConfig(cfg)
	expect.NoError(t, err)
	c.informer = informers.NewOfPods(cfg, informers.Options{})
	expect.NoError(t, informers.Start(ctx, c.informer))
	poll.Until(t, patience, "the informer has synced", c.informer.HasSynced)
	configMaps := client.CoreV1().ConfigMaps(team)
	const pause = 100 * time.Millisecond // of each client between two requests
	for name, send := range map[string]func() error{
		"poll": func() error {
			_, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
			return err
		},
		"consistent list": func() error {
			_, err := client.CoreV1().Pods(team).List(ctx, metav1.ListOptions{})
			return err
		},
		"page": func() error {
			options := metav1.ListOptions{Limit: 2}
			for {
				page, err := client.CoreV1().Pods("").List(ctx, options)
				if err != nil || page.Continue == "" {
					return err
				}
				options.Continue = page.Continue
			}
		},
		"write": func() error {
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "crowd-"}}
			created, err := configMaps.Create(ctx, object, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			return configMaps.Delete(ctx, created.Name, metav1.DeleteOptions{})
		},
	} {
		clients.Go(func() error {
			for range poll.Ticks(ctx, pause) {
				err := send()
				if ctx.Err() != nil {
					break // cut off, not failed
				}
				c.mu.Lock()
				c.requests[name]++
				if err != nil {
					c.failures = append(c.failures, name+": "+err.Error())
				}
				c.mu.Unlock()
			}
			return nil
		})
	}
	return c
}

// stored returns the pods that the informer has.
func (c *crowd) stored() map[string]string { return ask.Versions(informers.Stored(c.informer)) }
