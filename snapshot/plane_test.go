package snapshot

import (
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/inmemory"
)

// release is what the API servers of the tests are of.
const release = "v1.36.0"

// widgets is the resource that a control plane in memory serves.
var widgets = Resource{
	GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"},
	Namespaced:           true, Representation: media.JSON,
}

// plane is a control plane in memory with one API server, and the way there.
type plane struct {
	*inmemory.ControlPlane
	http.RoundTripper
}

// newPlane starts one, in a bubble.
func newPlane(t *testing.T) *plane {
	t.Helper()
	p := &plane{ControlPlane: inmemory.New(t)}
	server := p.AddServer(release)
	server.Start(release)
	client, err := rest.HTTPClientFor(p.Config())
	expect.NoError(t, err)
	p.RoundTripper = client.Transport
	t.Cleanup(func() {
		server.Stop()
		time.Sleep(time.Hour) // what is on its way ends
	})
	return p
}

// list is a state as the API server writes it.
func (p *plane) list(revision uint64) string {
	form := inmemory.Form{Definition: 1, Release: release}
	return p.WriteList(0, inmemory.Widgets, int64(revision), inmemory.List{}, func(int) inmemory.Form { return form }) // #nosec G115 -- it was none
}

// written is a state as listproxy writes it.
func written(s Snapshot) string {
	var items [][]byte
	for _, o := range s.Page(index.Query{}, nil).Objects {
		items = append(items, o.Bytes)
	}
	return string(s.Frame.Render(wire.ListMeta{Revision: s.Revision}, items))
}
