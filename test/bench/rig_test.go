package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
)

// startControlPlane starts a control plane until the benchmark ends.
func startControlPlane(b *testing.B) *controlplane.ControlPlane {
	b.Helper()
	cp, err := controlplane.Start(b.Context(), controlplane.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(cp.Stop)
	return cp
}

func newClient(b *testing.B, config *rest.Config) *ask.Client {
	b.Helper()
	c, err := ask.New(config, 0)
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// object is the body of a request.
type object = map[string]any

// answer is what of an answer matters here.
type answer struct {
	code     int
	hit      bool // from memory
	size     int
	revision uint64
	next     string // continue token
}

// question sends a request and reads all of the answer.
func question(ctx context.Context, c *ask.Client, method, path string, body any) (answer, error) {
	said, err := c.Send(ctx, method, path, body)
	if err != nil {
		return answer{}, err
	}
	a := answer{code: said.Code, size: len(said.Body), hit: said.FromMemory()}
	// What lists and objects say about themselves comes first; reading all items would be measured,
	// too.
	if i := bytes.Index(said.Body, []byte(`"items":[`)); i > 0 {
		said.Body = append(slices.Clone(said.Body[:i]), `"items":[]}`...)
	}
	a.next = said.Meta().Continue
	a.revision, _ = said.Revision()
	return a, nil
}

// get must be answered with a 200.
func get(ctx context.Context, c *ask.Client, path string, query url.Values) (answer, error) {
	a, err := question(ctx, c, http.MethodGet, path+"?"+query.Encode(), nil)
	if err == nil && a.code != http.StatusOK {
		err = fmt.Errorf("GET %s: %d", path, a.code)
	}
	return a, err
}

// fill creates config maps config-000000 to n, of about 300 bytes each in JSON, by some writers.
func fill(b *testing.B, cp *controlplane.ControlPlane, n int) {
	b.Helper()
	const writers = 16
	admin := newClient(b, cp.RESTConfig(controlplane.Admin))
	var all sync.WaitGroup
	failed := make(chan error, writers)
	for w := range writers {
		all.Go(func() {
			for i := w; i < n; i += writers {
				if _, err := admin.Do(b.Context(), http.MethodPost, "/api/v1/namespaces/team-a/configmaps", object{
					"metadata": object{"name": fmt.Sprintf("config-%06d", i)}, "data": object{"key": "value"},
				}); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(failed)
	if err := <-failed; err != nil {
		b.Fatal(err)
	}
}

// writeElsewhere changes a lease, so that the revision moves and no config map does.
func writeElsewhere(ctx context.Context, admin *ask.Client) (uint64, error) {
	const leases = "/apis/coordination.k8s.io/v1/namespaces/team-b/leases"
	a, err := admin.Do(ctx, http.MethodPatch, leases+"/elsewhere", kinds.Touch(time.Now().Format(time.RFC3339Nano)))
	if a.Code == http.StatusNotFound {
		a, err = admin.Do(ctx, http.MethodPost, leases, object{"metadata": object{"name": "elsewhere"}})
	}
	if err != nil {
		return 0, err
	}
	return a.Revision()
}

// sample is a series of measurements.
type sample []time.Duration

// report reports the median and the longest, in milliseconds.
func (s sample) report(b *testing.B, what string) {
	b.Helper()
	if len(s) == 0 {
		b.Fatal(errors.New("nothing was measured: " + what))
	}
	slices.Sort(s)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(s[len(s)/2]), what+"-median-ms")
	b.ReportMetric(ms(s[len(s)-1]), what+"-longest-ms")
}
