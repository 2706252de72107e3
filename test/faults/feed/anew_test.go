package feed

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/informers"
)

// informed is an informer of client-go, and what it has asked for.
type informed struct {
	// lists and gone count its lists, and the answers that its revision is too old.
	lists, gone atomic.Int32
	stored      func(key string) (*unstructured.Unstructured, bool)
}

// inform starts an informer of config maps in a namespace, against one side.
func inform(t *testing.T, cfg *rest.Config, namespace string) *informed {
	t.Helper()
	i := &informed{}
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) { return i.count(next, r) })
	})
	clients, err := informers.NewClients(cfg)
	expect.NoError(t, err)
	lister := clients.Listers(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, namespace)["dynamic"]
	informer := lister.Informer(true, "", "")
	expect.NoError(t, informers.Start(t.Context(), informer))
	i.stored = func(key string) (*unstructured.Unstructured, bool) {
		o, found := informers.Stored(informer)[namespace+"/"+key].(*unstructured.Unstructured)
		return o, found
	}
	return i
}

type roundTrip func(r *http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// count passes a request on, and counts it.
func (i *informed) count(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	watches := r.URL.Query().Has("watch")
	if !watches {
		i.lists.Add(1)
	}
	answer, err := next.RoundTrip(r)
	switch {
	case err != nil:
	case answer.StatusCode == http.StatusGone:
		i.gone.Add(1)
	case watches:
		answer.Body = &goneCounter{answer.Body, &i.gone}
	}
	return answer, err
}

// goneCounter counts the events of a watch that say 410.
type goneCounter struct {
	io.ReadCloser
	gone *atomic.Int32
}

// Read implements io.Reader.
func (c *goneCounter) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if bytes.Contains(p[:n], []byte(`"code":410`)) {
		c.gone.Add(1)
	}
	return n, err
}

// informersEach is how many informers each side has: when one of them asks again is chance.
const informersEach = 4

// Rule 6: when an API server makes the watch cache of one resource anew, here because an object
// was damaged in etcd for a while, informers behind listproxy ask no more often than those that ask
// directly: what they get after a 410 is newer than what was refused.
func TestWatchCacheMadeAnew(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	c := ownCluster(t)
	r := newRig(t, c, rigOptions{args: []string{"--eager", "configmaps"}})
	ns := r.namespace(t, "made-anew")
	r.create(t, configMaps, ns, "one")
	r.await(hitAny, configMaps.Path(ns), anyVersion())
	const direct, through = "directly", "through listproxy"
	sides := map[string][]*informed{}
	for range informersEach {
		sides[direct] = append(sides[direct], inform(t, c.RESTConfig(controlplane.Admin), ns))
		sides[through] = append(sides[through], inform(t, r.proxy.RESTConfig(c.RESTConfig(controlplane.Admin)), ns))
	}
	// all is how long after since the last informer of each side had come to show a value.
	all := func(value string, since time.Time) map[string]time.Duration {
		came := map[string]time.Duration{}
		r.until("informers that show "+value, func() error {
			for side, informers := range sides {
				if _, is := came[side]; !is && !slices.ContainsFunc(informers, func(i *informed) bool { return !i.shows(value) }) {
					came[side] = time.Since(since)
				}
			}
			if len(came) < len(sides) {
				return fmt.Errorf("so far %v", came)
			}
			return nil
		})
		return came
	}
	r.touch(t, configMaps, ns, "one", "before")
	all("before", time.Now())
	for _, informers := range sides {
		for _, i := range informers {
			i.lists.Store(0)
			i.gone.Store(0)
		}
	}

	const damaged = "configmaps/made-anew/damaged"
	expect.NoError(t, c.DamageEtcd(t.Context(), damaged))
	r.until("the feed to be without a stream", func() error {
		if !strings.Contains(r.proxy.Log(), "watch not resumed yet") {
			return errors.New("it has one")
		}
		return nil
	})
	// However long the feed takes to come back, informers do not wait for it.
	r.onFault(func(w http.ResponseWriter, req *http.Request) bool {
		return of(req, configMaps) && hop.Refuse(w, http.StatusServiceUnavailable)
	})
	r.touch(t, configMaps, ns, "one", "after")
	expect.NoError(t, c.MendEtcd(t.Context(), damaged))
	came := all("after", time.Now())
	r.onFault(nil)
	lists, gone := map[string]int32{}, map[string]int32{}
	for side, informers := range sides {
		for _, i := range informers {
			lists[side] += i.lists.Load()
			gone[side] += i.gone.Load()
		}
	}
	t.Logf("%d informers each: true after %v, lists %v, answers 410 %v", informersEach, came, lists, gone)
	if gone[direct] == 0 {
		t.Error("the API server has refused no watch")
	}
	if lists[through] > max(lists[direct], informersEach) || gone[through] > max(gone[direct], informersEach) {
		t.Error("informers behind listproxy asked more often")
	}
	r.await(hitNotOlderThan, configMaps.Path(ns), notOlderThan(r.touch(t, configMaps, ns, "one", "last")))
}

// shows reports whether the informer has the object "one" with a value.
func (i *informed) shows(value string) bool {
	o, found := i.stored("one")
	return found && o.GetAnnotations()["touched"] == value
}
