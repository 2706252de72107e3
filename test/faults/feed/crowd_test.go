package feed

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/hop"
)

// Rule 2: a crowd that comes at once to a resource that nobody has asked for costs the API server a
// few lists and the load.
func TestCrowdAtAColdResource(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	const crowd, objects = 200, 1000
	var lists atomic.Int32
	c := ownCluster(t)
	r := newRig(t, c, rigOptions{})
	r.hop.OnRequest(func(w http.ResponseWriter, req *http.Request) bool {
		if !hop.Own(req) && req.URL.Path == configMaps.Path("") {
			lists.Add(1)
		}
		return r.onRequest(w, req)
	})
	ns := r.namespace(t, "crowd")
	var writing sync.WaitGroup
	for i := range 10 {
		writing.Go(func() {
			for j := range objects / 10 {
				_, err := c.direct.Do(t.Context(), http.MethodPost, configMaps.Path(ns), configMaps.Object(fmt.Sprintf("slice-%d-%d", i, j)))
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	r.ask(pods.Path(""), anyVersion()) // the caller is known, and so is what is served
	begun, slowest := time.Now(), atomic.Int64{}
	sources := map[string]int{}
	var mu sync.Mutex
	var asking sync.WaitGroup
	for range crowd {
		asking.Go(func() {
			a, err := r.admin.Get(t.Context(), configMaps.Path("")+"?resourceVersion=0")
			if err != nil || a.Code != http.StatusOK {
				t.Errorf("%v: %s", err, a)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			sources[a.Source()]++
			slowest.Store(max(slowest.Load(), int64(time.Since(begun))))
		})
	}
	asking.Wait()
	t.Logf("%d lists of %d objects at once: %d reached the API server, beside %d loads; the last answer came after %v; %v",
		crowd, objects, lists.Load(), r.count(configMaps, fullLoad), time.Duration(slowest.Load()).Round(time.Millisecond), sources)
	if n := lists.Load(); n > 4 {
		t.Errorf("%d lists reached the API server", n)
	}
	expect.NoError(t, r.loaded(configMaps, 1))
	r.expect(hitAny, configMaps.Path(""), anyVersion())
}
