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

// A crowd are clients that do the same by one way: they inform themselves, poll, page and write.
type crowd struct {
	way      string
	informer cache.SharedIndexInformer

	mu     sync.Mutex
	asked  map[string]int
	failed []string
}

// beside runs a crowd through listproxy beside one that goes to kube-apiserver, while something is done. What
// fails for the first and not for the other is wrong, unless its error has one of the words that are allowed. Both know
// the same in the end.
func beside(t *testing.T, through, direct *rest.Config, done func(), allowed ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	crowds := []*crowd{{way: "through"}, {way: "direct"}}
	var clients errgroup.Group
	for i, cfg := range []*rest.Config{through, direct} {
		crowds[i].start(ctx, t, cfg, &clients)
	}
	done()
	same := func() bool { return maps.Equal(crowds[0].stored(), crowds[1].stored()) }
	poll.Until(t, patience, "informers of both ways know the same pods", same)
	cancel()
	_ = clients.Wait()
	for _, c := range crowds {
		t.Logf("%s: %v, %d failed", c.way, c.asked, len(c.failed))
	}
	failed := slices.DeleteFunc(crowds[0].failed, func(failure string) bool {
		return slices.ContainsFunc(allowed, func(words string) bool { return strings.Contains(failure, words) })
	})
	if len(failed) > 0 {
		t.Errorf("%d requests failed through listproxy, and %d of kube-apiserver's; the first: %s", len(failed), len(crowds[1].failed), failed[0])
	}
}

func (c *crowd) start(ctx context.Context, t *testing.T, cfg *rest.Config, clients *errgroup.Group) {
	t.Helper()
	c.asked = map[string]int{}
	client, err := kubernetes.NewForConfig(cfg)
	expect.NoError(t, err)
	c.informer = informers.New(cfg, "typed", corev1.SchemeGroupVersion.WithResource("pods"), false, "")
	expect.NoError(t, informers.Start(ctx, c.informer))
	poll.Until(t, patience, "the informer has begun", c.informer.HasSynced)
	maps := client.CoreV1().ConfigMaps(team)
	for what, do := range map[string]func() error{
		"poll": func() error {
			_, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
			return err
		},
		"newest": func() error {
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
			made, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "crowd-"}}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			return maps.Delete(ctx, made.Name, metav1.DeleteOptions{})
		},
	} {
		clients.Go(func() error {
			for range poll.Ticks(ctx, time.Second/10) {
				err := do()
				if ctx.Err() != nil {
					break
				}
				c.mu.Lock()
				c.asked[what]++
				if err != nil {
					c.failed = append(c.failed, what+": "+err.Error())
				}
				c.mu.Unlock()
			}
			return nil
		})
	}
}

// stored are the pods that the informer knows.
func (c *crowd) stored() map[string]string { return ask.Versions(informers.Stored(c.informer)) }
