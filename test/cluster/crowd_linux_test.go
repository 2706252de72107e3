package cluster_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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
	clients  sync.WaitGroup

	mu       sync.Mutex
	requests map[string]int // number of requests by name
	failures []string
}

// whileClientsWork runs a crowd at listproxy, and one at kube-apiserver, while disturb runs. No request may fail at listproxy,
// but for errors that contain one of the tolerated texts. In the end both informers must have the same pods.
func whileClientsWork(t *testing.T, through, direct *rest.Config, disturb func(), tolerated ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	proxyCrowd := startCrowd(ctx, t, through)
	directCrowd := startCrowd(ctx, t, direct)
	disturb()
	poll.Until(t, patience, "both informers have the same pods", func() bool { return maps.Equal(proxyCrowd.pods(), directCrowd.pods()) })
	cancel()
	proxyCrowd.clients.Wait()
	directCrowd.clients.Wait()
	t.Logf("through listproxy: %v, %d failed", proxyCrowd.requests, len(proxyCrowd.failures))
	t.Logf("directly: %v, %d failed", directCrowd.requests, len(directCrowd.failures))
	unexpected := proxyCrowd.failuresWithout(tolerated)
	if len(unexpected) > 0 {
		t.Errorf("%d requests failed through listproxy, and %d directly; the first: %s", len(unexpected), len(directCrowd.failures), unexpected[0])
	}
}

// failuresWithout returns the failures that contain none of the tolerated texts.
func (c *crowd) failuresWithout(tolerated []string) (unexpected []string) {
	for _, failure := range c.failures {
		if !slices.ContainsFunc(tolerated, func(text string) bool { return strings.Contains(failure, text) }) {
			unexpected = append(unexpected, failure)
		}
	}
	return unexpected
}

// startCrowd starts a crowd, which works until ctx ends, and waits until its informer has synced.
func startCrowd(ctx context.Context, t *testing.T, cfg *rest.Config) *crowd {
	t.Helper()
	client, err := kubernetes.NewForConfig(cfg)
	expect.NoError(t, err)
	c := &crowd{informer: informers.NewOfPods(cfg, informers.Options{}), requests: map[string]int{}}
	expect.NoError(t, informers.Start(ctx, c.informer))
	poll.Until(t, patience, "the informer has synced", c.informer.HasSynced)
	for name, send := range map[string]func(context.Context, kubernetes.Interface) error{
		"poll": pollPods, "consistent list": listTeamPods, "page": pagePods, "write": writeConfigMap,
	} {
		c.clients.Go(func() {
			for range poll.Ticks(ctx, time.Second/10) {
				err := send(ctx, client)
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
		})
	}
	return c
}

// pods returns the versions of the pods that the informer has.
func (c *crowd) pods() map[string]string { return ask.Versions(informers.Stored(c.informer)) }

func pollPods(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	return err
}

func listTeamPods(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoreV1().Pods(team).List(ctx, metav1.ListOptions{})
	return err
}

func pagePods(ctx context.Context, client kubernetes.Interface) error {
	options := metav1.ListOptions{Limit: 2}
	for {
		page, err := client.CoreV1().Pods("").List(ctx, options)
		if err != nil || page.Continue == "" {
			return err
		}
		options.Continue = page.Continue
	}
}

func writeConfigMap(ctx context.Context, client kubernetes.Interface) error {
	configMaps := client.CoreV1().ConfigMaps(team)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "crowd-"}}
	created, err := configMaps.Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return configMaps.Delete(ctx, created.Name, metav1.DeleteOptions{})
}
