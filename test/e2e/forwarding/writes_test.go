package forwarding

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/hop"
)

// write is one step of a script, and the status that it must have.
type write struct {
	status int
	call   call
}

func jsonBody(method, path, body string) call {
	return call{method: method, path: path, body: body, header: http.Header{"Content-Type": {"application/json"}}}
}

func patch(kind, path, body string) call {
	return call{method: http.MethodPatch, path: path, body: body, header: http.Header{"Content-Type": {kind}}}
}

// TestWrites plays the same scripts straight and through listproxy. Each cleans up behind itself,
// so both find the same.
func TestWrites(t *testing.T) {
	ns := newNamespace(t)
	core := "/api/v1/namespaces/" + ns
	maps, pods, accounts := core+"/configmaps", core+"/pods", core+"/serviceaccounts"
	one := maps + "/one"
	deployments := "/apis/apps/v1/namespaces/" + ns + "/deployments"
	web := deployments + "/web"
	const (
		mergePatch     = "application/merge-patch+json"
		jsonPatch      = "application/json-patch+json"
		strategicPatch = "application/strategic-merge-patch+json"
		applyPatch     = "application/apply-patch+yaml"
	)
	configMap := func(name, extra string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"app":"writes"}}%s}`, name, extra)
	}
	const deployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":1,` +
		`"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},` +
		`"spec":{"containers":[{"name":"main","image":"example.com/web"}]}}}}`
	pod := func(name string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q},`+
			`"spec":{"containers":[{"name":"main","image":"example.com/web"}]}}`, name)
	}
	scripts := map[string][]write{
		"object": {
			{404, call{path: one}},
			{201, jsonBody("POST", maps, configMap("one", ""))},
			{409, jsonBody("POST", maps, configMap("one", ""))},
			{200, call{path: one}},
			{200, jsonBody("PUT", one, configMap("one", `,"data":{"a":"1"}`))},
			{409, jsonBody("PUT", one, strings.Replace(configMap("one", ""), `"metadata":{`, `"metadata":{"resourceVersion":"1",`, 1))},
			{400, jsonBody("PUT", one, configMap("two", ""))},
			{200, patch(mergePatch, one, `{"data":{"b":"2"}}`)},
			{200, patch(jsonPatch, one, `[{"op":"add","path":"/data/c","value":"3"}]`)},
			{200, patch(strategicPatch, one, `{"data":{"d":"4"}}`)},
			{200, patch(applyPatch, one+"?fieldManager=test&force=true", "apiVersion: v1\nkind: ConfigMap\ndata: {e: '5'}\n")},
			{409, patch(applyPatch, one+"?fieldManager=other", "apiVersion: v1\nkind: ConfigMap\ndata: {e: '6'}\n")},
			{201, patch(applyPatch, maps+"/applied?fieldManager=test", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: applied}\n")},
			{415, patch("text/plain", one, `{}`)},
			{422, patch(jsonPatch, one, `[{"op":"test","path":"/data/c","value":"4"}]`)},
			{200, call{path: one}},
			{409, jsonBody("DELETE", one, `{"preconditions":{"uid":"00000000-0000-0000-0000-000000000000"}}`)},
			{200, call{method: "DELETE", path: one + "?propagationPolicy=Background"}},
			{404, call{method: "DELETE", path: one}},
			{200, call{method: "DELETE", path: maps + "/applied"}},
		},
		"dry run": {
			{201, jsonBody("POST", maps+"?dryRun=All", configMap("one", ""))},
			{404, call{path: one}},
			{201, jsonBody("POST", maps, configMap("one", ""))},
			{200, patch(mergePatch, one+"?dryRun=All", `{"data":{"b":"2"}}`)},
			{200, call{method: "DELETE", path: one + "?dryRun=All"}},
			{200, call{path: one}},
			{200, call{method: "DELETE", path: one}},
		},
		"collection": {
			{201, jsonBody("POST", maps, configMap("one", ""))},
			{201, jsonBody("POST", maps, configMap("two", ""))},
			{200, call{method: "DELETE", path: maps + "?labelSelector=app%3Dother"}},
			{200, call{path: one}},
			{200, call{method: "DELETE", path: maps + "?labelSelector=app%3Dwrites"}},
			{404, call{path: one}},
		},
		"refused": {
			{422, jsonBody("POST", maps, configMap("Not A Name", ""))},
			{400, jsonBody("POST", maps, `{"apiVersion":"v1",`)},
			{400, jsonBody("POST", maps, deployment)},
			{405, jsonBody("PUT", maps, configMap("one", ""))},
			{405, jsonBody("POST", one, configMap("one", ""))},
			{400, jsonBody("POST", maps+"?fieldValidation=Strict", configMap("one", `,"spec":{}`))},
			{201, jsonBody("POST", maps+"?fieldValidation=Warn", configMap("one", `,"spec":{}`))}, // a Warning
			{200, call{method: "DELETE", path: one}},
			{404, jsonBody("POST", "/api/v1/namespaces/no-such/configmaps", configMap("one", ""))},
			{403, jsonBody("POST", maps, configMap("one", "")).as(controlplane.Alice)},
		},
		"scale and status": {
			{201, jsonBody("POST", deployments, deployment)},
			{200, call{path: web + "/scale"}},
			{200, jsonBody("PUT", web+"/scale", `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"web","namespace":"`+ns+`"},"spec":{"replicas":3}}`)},
			{200, patch(mergePatch, web+"/status", `{"status":{"replicas":2,"observedGeneration":1}}`)},
			{200, call{path: web + "/status"}},
			{200, jsonBody("DELETE", web, `{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Orphan"}`)},
			{200, patch(mergePatch, web, `{"metadata":{"finalizers":null}}`)},
			{404, call{path: web}},
		},
		// What the API server does of garbage collection: it marks what a controller then empties.
		"garbage collection": {
			{201, jsonBody("POST", maps, configMap("one", ""))},
			{422, jsonBody("DELETE", one, `{"propagationPolicy":"Sideways"}`)},
			{422, jsonBody("DELETE", one, `{"propagationPolicy":"Orphan","orphanDependents":true}`)},
			{200, jsonBody("DELETE", one, `{"propagationPolicy":"Foreground"}`)},
			{200, call{path: one}}, // with a deletionTimestamp and the finalizer
			{200, jsonBody("DELETE", one, `{"propagationPolicy":"Orphan"}`)},
			{422, patch(mergePatch, one, `{"metadata":{"finalizers":["foregroundDeletion","listproxy.test/new"]}}`)},
			{200, patch(mergePatch, one, `{"metadata":{"finalizers":null}}`)},
			{404, call{path: one}},
			{201, jsonBody("POST", maps, configMap("one", ""))},
			{200, jsonBody("DELETE", one, `{"orphanDependents":true}`)},
			{200, patch(jsonPatch, one, `[{"op":"test","path":"/metadata/finalizers/0","value":"orphan"},{"op":"remove","path":"/metadata/finalizers"}]`)},
			{201, jsonBody("POST", maps, configMap("one", ""))},
			{200, jsonBody("DELETE", maps+"?labelSelector=app%3Dwrites", `{"propagationPolicy":"Foreground"}`)},
			{200, patch(jsonPatch, one, `[{"op":"test","path":"/metadata/finalizers/0","value":"foregroundDeletion"},{"op":"remove","path":"/metadata/finalizers"}]`)},
			{404, call{path: one}},
		},
		"binding and eviction": {
			{201, jsonBody("POST", pods, pod("web"))},
			{201, jsonBody("POST", pods+"/web/binding", `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"web"},"target":{"apiVersion":"v1","kind":"Node","name":"`+nodeName+`"}}`)},
			{409, jsonBody("POST", pods+"/web/binding", `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"web"},"target":{"apiVersion":"v1","kind":"Node","name":"`+nodeName+`"}}`)},
			{200, patch(strategicPatch, pods+"/web/status", `{"status":{"phase":"Succeeded"}}`)},
			{201, jsonBody("POST", pods+"/web/eviction", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"web"},"deleteOptions":{"gracePeriodSeconds":0}}`)},
			{404, call{path: pods + "/web"}},
			{404, jsonBody("POST", pods+"/web/eviction", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"web"}}`)},
		},
		"token": {
			{201, jsonBody("POST", accounts, `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"robot"}}`)},
			{201, jsonBody("POST", accounts+"/robot/token", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":3600}}`)},
			{200, call{method: "DELETE", path: accounts + "/robot"}},
		},
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) {
			for _, proto := range []string{http1, http2} {
				var want []reply
				for i, step := range script {
					step.call.proto = proto
					want = append(want, direct.do(t, step.call))
					if want[i].Status != step.status {
						t.Fatalf("straight, %s %s: status %d, want %d: %s",
							step.call.method, step.call.path, want[i].Status, step.status, want[i].Body)
					}
				}
				for i, step := range script {
					step.call.proto = proto
					got := via.do(t, step.call)
					if d := diff(want[i].impersonal(), got.impersonal()); d != "" {
						t.Errorf("%s %s over %s (-direct +via):\n%s", step.call.method, step.call.path, proto, d)
					}
					wantForwarded(t, got, "not-list")
				}
			}
		})
	}
}

// TestProtobufWrite writes and reads what is not text.
func TestProtobufWrite(t *testing.T) {
	ns := newNamespace(t)
	codec := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	want := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "one", Namespace: ns},
		BinaryData: map[string][]byte{"all": allBytes()},
	}
	body, err := runtime.Encode(codec, want)
	expect.NoError(t, err)
	got := via.do(t, call{
		method: http.MethodPost, path: "/api/v1/namespaces/" + ns + "/configmaps", body: string(body),
		header: http.Header{"Content-Type": {asProtobuf}, "Accept": {asProtobuf}},
	})
	if got.Status != http.StatusCreated {
		t.Fatalf("status %d: %q", got.Status, got.Body)
	}
	back := same(t, call{path: "/api/v1/namespaces/" + ns + "/configmaps/one", header: accept(asProtobuf)}, "not-list")
	if back.Body != got.Body {
		t.Error("what was written is not what is read")
	}
	var decoded corev1.ConfigMap
	expect.NoError(t, runtime.DecodeInto(codec, []byte(back.Body), &decoded))
	if string(decoded.BinaryData["all"]) != string(allBytes()) {
		t.Error("the bytes are not those that were written")
	}
}

func allBytes() []byte {
	bytes := make([]byte, 256)
	for i := range bytes {
		bytes[i] = byte(i)
	}
	return bytes
}

// TestLargeUploads sends as much as an object may hold, and more than the API server reads.
func TestLargeUploads(t *testing.T) {
	harness.Long(t)
	maps := "/api/v1/namespaces/" + newNamespace(t) + "/configmaps"
	payload := func(size int) string { return strings.Repeat("0123456789abcdef", size/16) }
	large := func(size int) call {
		return jsonBody("POST", maps, fmt.Sprintf(
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"large"},"data":{"it":%q}}`, payload(size)))
	}
	// The payload comes back; it is compared here, where that is cheap.
	short := func(r reply) reply {
		r.Body = strings.Replace(r.Body, payload(1000<<10), "PAYLOAD", 1)
		return r.impersonal()
	}
	for _, proto := range []string{http1, http2} {
		for _, test := range []write{
			{201, large(1000 << 10)},
			{422, large(1100 << 10)}, // more than a ConfigMap may hold
			{413, large(3200 << 10)}, // more than a request may hold
		} {
			test.call.proto = proto
			remove := call{method: "DELETE", path: maps + "/large"}
			want := direct.do(t, test.call)
			direct.do(t, remove)
			got := via.do(t, test.call)
			direct.do(t, remove)
			if d := diff(short(want), short(got)); d != "" {
				t.Errorf("%s, %d bytes (-direct +via):\n%s", proto, len(test.call.body), d)
			}
			if got.Status != test.status {
				t.Errorf("%s, %d bytes: status %d, want %d: %.300s", proto, len(test.call.body), got.Status, test.status, got.Body)
			}
			wantForwarded(t, got, "not-list")
		}
	}
}

// TestAnswerBeforeTheBody has the API server answer before there is a body, as it does where the
// body cannot matter. The answer must end nevertheless: clients stop sending when they are refused.
// (Over HTTP/1.1 the API server itself waits for the body.)
func TestAnswerBeforeTheBody(t *testing.T) {
	maps := "/api/v1/namespaces/" + newNamespace(t) + "/configmaps"
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for name, test := range map[string]write{
		"not allowed": {405, jsonBody("PUT", maps, "")},
		"forbidden":   {403, jsonBody("POST", maps, "").as(controlplane.Alice)},
		"no one":      {401, jsonBody("POST", maps, "").as(stranger)},
	} {
		t.Run(name, func(t *testing.T) {
			ask := func(d *door) reply {
				body, withheld := io.Pipe()
				defer func() { _ = withheld.Close() }()
				return d.read(t, d.sendBody(ctx, t, test.call, body))
			}
			want, got := ask(direct), ask(via)
			if d := diff(want, got); d != "" || got.Status != test.status {
				t.Errorf("status %d, want %d (-direct +via):\n%s", got.Status, test.status, d)
			}
		})
	}
}

// TestStrangersDoNotDisturb writes while others are refused. After a 401 the API server closes the
// connection (GOAWAY), to which listproxy's callers have no part: they share what it has upstream.
func TestStrangersDoNotDisturb(t *testing.T) {
	harness.Long(t)
	maps := "/api/v1/namespaces/" + newNamespace(t) + "/configmaps?dryRun=All"
	theirs, err := newDoor(t.TempDir(), "via", via.configs) // another connection
	expect.NoError(t, err)
	t.Cleanup(theirs.close)
	done := make(chan struct{})
	var strangers sync.WaitGroup
	strangers.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				if r := theirs.do(t, call{path: "/version/", user: stranger}); r.Status != http.StatusUnauthorized {
					t.Errorf("a stranger's status is %d", r.Status)
				}
			}
		}
	})
	defer strangers.Wait()
	defer close(done)
	const writes = 300
	failures := map[string]int{}
	for range writes {
		r := via.do(t, jsonBody("POST", maps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one"}}`))
		if r.Status != http.StatusCreated {
			failures[fmt.Sprint(r.Status, " ", r.Body)]++
		}
	}
	if len(failures) > 0 {
		t.Errorf("of %d writes failed: %v", writes, failures)
	}
}

// closing is a kube-apiserver that now and then closes the connection of a request (GOAWAY), behind a
// balancer that counts connections.
func closing(t *testing.T) (counted *hop.Balancer, configs func(user string) *rest.Config) {
	t.Helper()
	server, err := cp.AddAPIServer(t.Context(), cp.Version())
	expect.NoError(t, err)
	t.Cleanup(func() { _ = server.Kill() })
	expect.NoError(t, server.Kill())
	expect.NoError(t, server.Use(t.Context(), cp.Version(), fmt.Sprint("--goaway-chance=", goAwayChance)))
	expect.NoError(t, server.Start(t.Context()))
	counted, err = hop.StartBalancer()
	expect.NoError(t, err)
	t.Cleanup(counted.Close)
	counted.Add(strings.TrimPrefix(server.URL(), "https://"))
	return counted, func(user string) *rest.Config {
		config := cp.RESTConfig(user)
		config.Host = "https://" + counted.Address()
		return config
	}
}

// TestGoAway: kube-apiserver closes connections while reads and writes of all sizes are under way. No
// more of them fail through listproxy than directly: none, or where there is no room to keep a body,
// with an answer for which clients repeat the request. And listproxy opens about one connection for each
// that is closed, though many requests wait for it.
func TestGoAway(t *testing.T) {
	harness.Long(t)
	counted, configs := closing(t)
	plain, err := harness.BuildPlainProxy(t.Context()) // a fast one, as the API server is
	expect.NoError(t, err)
	start := func(args ...string) *door {
		return startProxy(t, harness.ProxyOptions{Binary: plain, Upstream: configs(controlplane.Feed), Args: append([]string{"--log-level", "info"}, args...)})
	}
	ns := newNamespace(t)
	newConfigMap(t, ns, "one", nil)
	again := "429, Retry-After 1"
	for _, side := range []struct {
		name  string
		door  *door
		may   string  // fail
		dials float64 // for a GOAWAY at most; more than there are even if the machine is busy; 0: not looked at
	}{
		{"directly", doorOf(t, configs), "", 0},
		{"through listproxy", start(), "", 4},
		{"through listproxy without room", start("--max-inflight-bytes", "64Ki"), again, 4},
	} {
		var goAways, dials float64
		for _, size := range []int{10 << 10, 300 << 10, 900 << 10} {
			l := load{door: side.door, path: "/api/v1/namespaces/" + ns + "/configmaps/one"}
			before := counted.Accepted()
			l.run(t, size)
			opened := counted.Accepted() - before
			harness.Log(fmt.Sprintf("goaway, %s, %d KiB: %d reads, %d writes, %d connections, failed: %v", side.name, size>>10, l.reads.Load(), writesUnderGoAway, opened, l.failed))
			goAways, dials = goAways+goAwayChance*float64(l.reads.Load()+writesUnderGoAway), dials+float64(opened)
			delete(l.failed, "PUT "+side.may)
			if len(l.failed) > 0 {
				t.Errorf("%s, %d KiB: %v", side.name, size>>10, l.failed)
			}
		}
		if side.dials > 0 && dials > side.dials*goAways {
			t.Errorf("%s: %v connections for %v GOAWAYs", side.name, dials, goAways)
		}
	}
}

const (
	writesUnderGoAway = 200
	goAwayChance      = 0.02 // of a request
)

// load reads and writes one object.
type load struct {
	door  *door
	path  string
	reads atomic.Int64

	mu     sync.Mutex
	failed map[string]int
}

// run sends writes of so many bytes, while twenty others read.
func (l *load) run(t *testing.T, size int) {
	t.Helper()
	l.failed = map[string]int{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var readers, writers sync.WaitGroup
	for range 20 {
		readers.Go(func() {
			for ctx.Err() == nil {
				l.send(ctx, call{path: l.path})
				l.reads.Add(1)
			}
		})
	}
	var sent atomic.Int64
	write := jsonBody(http.MethodPut, l.path+"?dryRun=All",
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one"},"data":{"a":"`+strings.Repeat("x", size)+`"}}`)
	for range 4 {
		writers.Go(func() {
			for sent.Add(1) <= writesUnderGoAway {
				l.send(t.Context(), write)
			}
		})
	}
	writers.Wait()
	cancel()
	readers.Wait()
}

// send sends a request and notes what became of it, unless ctx ended.
func (l *load) send(ctx context.Context, c call) {
	failure := func() string {
		r, err := http.NewRequestWithContext(ctx, c.method, l.door.url+c.path, strings.NewReader(c.body))
		if err != nil {
			return err.Error()
		}
		r.Header.Set("Authorization", "Bearer "+cp.Token(controlplane.Admin))
		maps.Copy(r.Header, c.header)
		res, err := l.door.clients[http2].Do(r)
		if err != nil {
			return err.Error()
		}
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		switch {
		case err != nil:
			return err.Error()
		case res.StatusCode == http.StatusOK:
			return ""
		case res.Header.Get("Retry-After") != "":
			return fmt.Sprintf("%d, Retry-After %s", res.StatusCode, res.Header.Get("Retry-After"))
		}
		return fmt.Sprint(res.StatusCode, " ", string(body[:min(len(body), 300)]))
	}()
	if failure != "" && ctx.Err() == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.failed[cmp.Or(c.method, http.MethodGet)+" "+failure]++
	}
}
