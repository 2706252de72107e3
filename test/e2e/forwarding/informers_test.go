package forwarding

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/informers"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// informersOf returns an informer of each kind of client for the config maps of a namespace.
func informersOf(t *testing.T, config *rest.Config, ns string) map[string]cache.SharedIndexInformer {
	t.Helper()
	clients, err := informers.NewClients(config)
	expect.NoError(t, err)
	all := map[string]cache.SharedIndexInformer{}
	for client, l := range clients.Listers(corev1.SchemeGroupVersion.WithResource("configmaps"), ns) {
		all[client] = l.Informer(false, "", "")
	}
	return all
}

// TestInformers has client-go's informers follow the same changes straight and through listproxy.
// They begin with streaming lists, and read lists where those are not offered.
func TestInformers(t *testing.T) { eachDoor(t, testInformers) }

func testInformers(t *testing.T, via *door) {
	ns := newNamespace(t)
	for i := range 30 {
		newConfigMap(t, ns, fmt.Sprintf("old-%d", i), map[string]string{"i": fmt.Sprint(i)})
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	straight := informersOf(t, direct.configs(controlplane.Admin), ns)
	through := informersOf(t, via.configs(controlplane.Admin), ns)
	for kind := range straight {
		for _, informer := range []cache.SharedIndexInformer{straight[kind], through[kind]} {
			go informer.RunWithContext(ctx)
			if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
				t.Fatal("the informers did not start")
			}
		}
	}

	maps := admin.CoreV1().ConfigMaps(ns)
	for i := range 30 {
		switch i % 3 {
		case 0:
			expect.NoError(t, maps.Delete(ctx, fmt.Sprintf("old-%d", i), metav1.DeleteOptions{}))
		case 1:
			change := fmt.Appendf(nil, `{"data":{"changed":"%d"},"metadata":{"labels":{"changed":"yes"}}}`, i)
			if _, err := maps.Patch(ctx, fmt.Sprintf("old-%d", i), types.MergePatchType, change, metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		default:
			newConfigMap(t, ns, fmt.Sprintf("new-%d", i), nil)
		}
	}
	last := newConfigMap(t, ns, "last", nil)

	for kind, informer := range straight {
		for _, store := range []cache.Store{informer.GetStore(), through[kind].GetStore()} {
			poll.Until(t, patience, kind+" informers saw the last change", func() bool {
				object, found, err := store.GetByKey(ns + "/last")
				expect.NoError(t, err)
				if !found {
					return false
				}
				accessor, err := meta.Accessor(object)
				expect.NoError(t, err)
				return accessor.GetResourceVersion() == last
			})
		}
		want, got := informers.Stored(informer), informers.Stored(through[kind])
		if len(want) != 31 {
			t.Errorf("%s: %d objects, want 31", kind, len(want))
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-direct +via):\n%s", kind, d)
		}
	}
}

// TestInformersOfANewToken: informers that start at once with a token that listproxy does not know all
// get their state from memory.
func TestInformersOfANewToken(t *testing.T) {
	const together = 8
	proxy := harness.RunProxy(t, harness.ProxyOptions{
		Upstream: cp.RESTConfig(controlplane.Feed), Args: []string{"--eager", "pods", "--watches"},
	})
	if from := whereFrom(t, proxy, podsOnly(t), together); from["hit"] != together {
		t.Errorf("%d informers with a new token were told %v", together, from)
	}
}

// whereFrom starts so many informers of pods at once, waits until each knows its pods, and returns
// where their watches came from, by what Cache-Status says.
func whereFrom(t *testing.T, proxy *harness.Proxy, caller *rest.Config, together int) map[string]int {
	t.Helper()
	var mu sync.Mutex
	from := map[string]int{}
	config := rest.CopyConfig(caller)
	config.Host, config.TLSClientConfig = proxy.URL(), rest.TLSClientConfig{CAData: proxy.CA()}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			answer, err := next.RoundTrip(r)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				if said := answer.Header.Get("Cache-Status"); strings.HasPrefix(said, "listproxy; hit") {
					from["hit"]++
				} else {
					from[said[strings.LastIndexByte(said, '=')+1:]]++
				}
			}
			return answer, err
		})
	})
	clients, err := informers.NewClients(config)
	expect.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var synced []cache.InformerSynced
	for i := range together {
		of := clients.Listers(corev1.SchemeGroupVersion.WithResource("pods"), fmt.Sprint("nowhere-", i))
		informer := of["dynamic"].Informer(false, "", "")
		expect.NoError(t, informers.Start(ctx, informer))
		synced = append(synced, informer.HasSynced)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		t.Fatal("the informers did not start")
	}
	mu.Lock()
	defer mu.Unlock()
	return from
}
