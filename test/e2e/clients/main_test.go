package clients

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/informers"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
)

var (
	duration = flag.Duration("clients.duration", 20*time.Second, "how long the clients run while objects change")
	seed     = flag.Uint64("clients.seed", 0, "of everything random; 0 chooses one")
)

// patience ends a wait for something that must come: after many broken connections an informer
// waits up to a minute before it tries again.
const patience = 3 * time.Minute

// What all tests share.
var (
	plane   *controlplane.ControlPlane
	running *harness.Proxy
	// direct is the API server itself, via is listproxy in front of it.
	direct, via *side
)

// The resources that change.
var (
	pods       = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	gadgets    = schema.GroupVersionResource{Group: "clients.listproxy.test", Version: "v1", Resource: "gadgets"}

	changing = []schema.GroupVersionResource{pods, configMaps, gadgets}
)

// namespaces in which they change; as keys, "team-a-b/x" comes before "team-a/x".
var namespaces = []string{"team-a", "team-a-b", "team-b"}

// side is a way to the API server, with a client of each kind.
type side struct {
	informers.Clients
	name    string
	config  *rest.Config
	origins *origins
}

// origins counts what a side's clients asked for, and what of it listproxy answered from memory.
type origins struct{ lists, streams, watches origin }

type origin struct{ hits, all atomic.Int64 }

// String is for the log.
func (o *origin) String() string { return fmt.Sprintf("%d of %d", o.hits.Load(), o.all.Load()) }

func (o *origins) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		if err != nil || r.Method != http.MethodGet {
			return resp, err
		}
		of, query := &o.lists, r.URL.Query()
		if query.Get("watch") != "" {
			of = &o.watches
		}
		if query.Get("sendInitialEvents") == "true" {
			of = &o.streams
		}
		of.all.Add(1)
		if ask.FromMemory(resp.Header) {
			of.hits.Add(1)
		}
		return resp, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip sends a request.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func newSide(name string, config *rest.Config) (*side, error) {
	config = rest.CopyConfig(config)
	counted := &origins{}
	config.WrapTransport = counted.wrap
	config.QPS = -1 // none of the tests is about waiting
	clients, err := informers.NewClients(config)
	return &side{clients, name, config, counted}, err
}

func TestMain(m *testing.M) {
	harness.Main(m, harness.Options{SetUp: setUp})
}

func setUp(s *harness.Suite) (err error) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	_, _ = fmt.Printf("-clients.seed=%d\n", *seed)
	if plane, err = s.ControlPlane(controlplane.Options{}); err != nil {
		return err
	}
	if direct, err = newSide("direct", plane.RESTConfig(controlplane.Admin)); err != nil {
		return err
	}
	if err := prepare(s.Context()); err != nil {
		return err
	}
	var eager []string
	for _, r := range changing {
		eager = append(eager, strings.TrimSuffix(r.Resource+"."+r.Version+"."+r.Group, ".v1."))
	}
	running, err = s.Proxy(harness.ProxyOptions{
		Upstream: plane.RESTConfig(controlplane.Feed), Args: []string{"--eager", strings.Join(eager, ","), "--consistent-lists=always", "--watches"},
	})
	if err != nil {
		return err
	}
	via, err = newSide("via", running.RESTConfig(plane.RESTConfig(controlplane.Admin)))
	return err
}

// prepare makes the namespaces and the custom resource.
func prepare(ctx context.Context) error {
	admin, err := ask.New(plane.RESTConfig(controlplane.Admin), patience)
	if err != nil {
		return err
	}
	for _, name := range append(slices.Clone(namespaces), watched) {
		if err := admin.Ensure(ctx, "/api/v1/namespaces", kinds.Namespace(name)); err != nil {
			return err
		}
	}
	version := kinds.Version(kinds.Fields{"type": "object", "properties": kinds.Fields{
		"spec": kinds.Fields{"type": "object", "properties": kinds.Fields{
			"color": kinds.Fields{"type": "string"}, "turn": kinds.Fields{"type": "integer"},
		}},
	}})
	version["selectableFields"] = []any{kinds.Fields{"jsonPath": ".spec.color"}}
	custom := kinds.Kind{APIVersion: gadgets.GroupVersion().String(), Name: "Gadget", Plural: gadgets.Resource}
	if err := admin.Ensure(ctx, kinds.Definitions, custom.Definition(version)); err != nil {
		return err
	}
	return poll.Retry(ctx, "the custom resource", func() error {
		_, err := admin.Do(ctx, http.MethodGet, custom.Path(""), nil)
		return err
	})
}
