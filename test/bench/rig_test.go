package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
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

// client asks one server for JSON.
type client struct {
	http *http.Client
	base string
}

func newClient(b *testing.B, config *rest.Config) *client {
	b.Helper()
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		b.Fatal(err)
	}
	return &client{http: transport, base: config.Host}
}

// object is the body of a request.
type object = map[string]any

// do sends a request and returns the answer, unread.
func (c *client) do(ctx context.Context, method, path string, body object) (*http.Response, error) {
	var payload io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		payload = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, payload)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	return c.http.Do(req)
}

// answer is what of an answer matters here.
type answer struct {
	code     int
	hit      bool // from memory
	size     int
	revision uint64
	next     string // continue token
}

// ask sends a request and reads all of the answer.
func (c *client) ask(ctx context.Context, method, path string, body object) (answer, error) {
	resp, err := c.do(ctx, method, path, body)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{code: resp.StatusCode, size: len(data)}
	a.hit = bytes.HasPrefix([]byte(resp.Header.Get("Cache-Status")), []byte("listproxy; hit"))
	// What lists and objects say about themselves comes first; reading all items would be measured, too.
	head := data
	if i := bytes.Index(data, []byte(`"items":[`)); i > 0 {
		head = append(slices.Clone(data[:i]), `"items":[]}`...)
	}
	var said struct {
		Metadata struct{ ResourceVersion, Continue string }
	}
	if err := json.Unmarshal(head, &said); err != nil {
		return a, err
	}
	a.next = said.Metadata.Continue
	a.revision, _ = strconv.ParseUint(said.Metadata.ResourceVersion, 10, 64)
	return a, nil
}

// get must be answered with a 200.
func (c *client) get(ctx context.Context, path string, query url.Values) (answer, error) {
	a, err := c.ask(ctx, http.MethodGet, path+"?"+query.Encode(), nil)
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
				a, err := admin.ask(b.Context(), http.MethodPost, "/api/v1/namespaces/team-a/configmaps", object{
					"metadata": object{"name": fmt.Sprintf("config-%06d", i)}, "data": object{"key": "value"},
				})
				if err == nil && a.code != http.StatusCreated {
					err = fmt.Errorf("creating a config map: %d", a.code)
				}
				if err != nil {
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
func writeElsewhere(ctx context.Context, admin *client) (uint64, error) {
	const leases = "/apis/coordination.k8s.io/v1/namespaces/team-b/leases"
	a, err := admin.ask(ctx, http.MethodPatch, leases+"/elsewhere", object{
		"metadata": object{"annotations": object{"at": time.Now().Format(time.RFC3339Nano)}},
	})
	if err == nil && a.code == http.StatusNotFound {
		a, err = admin.ask(ctx, http.MethodPost, leases, object{"metadata": object{"name": "elsewhere"}})
	}
	if err == nil && a.code/100 != 2 {
		err = fmt.Errorf("writing a lease: %d", a.code)
	}
	return a.revision, err
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

// sleep waits, unless ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
