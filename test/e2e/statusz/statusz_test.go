package statusz

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/telemetry/statusz"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// patience ends a wait for something that must come; no test passes because of it.
const patience = time.Minute

// What all tests share.
var (
	cp    *controlplane.ControlPlane
	proxy *harness.Proxy
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Options{SetUp: func(s *harness.Suite) (err error) {
		if cp, err = s.ControlPlane(controlplane.Options{}); err != nil {
			return err
		}
		proxy, err = s.Proxy(harness.ProxyOptions{
			Upstream: cp.RESTConfig(controlplane.Feed), Args: []string{"--eager", "namespaces", "--debug-pprof", "--log-level", "access"},
		})
		return err
	}})
}

// ask sends a GET, and returns the answer with its body.
func ask(t *testing.T, client *http.Client, url string, header http.Header) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// clientOf is a user's client of a server.
func clientOf(t *testing.T, cfg *rest.Config) *http.Client {
	t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func status(t *testing.T) statusz.Status {
	t.Helper()
	return statusOf(t, proxy)
}

func statusOf(t *testing.T, proxy *harness.Proxy) statusz.Status {
	t.Helper()
	resp, body := ask(t, http.DefaultClient, proxy.AdminURL()+"/statusz", http.Header{"Accept": {"application/json"}})
	var s statusz.Status
	if err := json.Unmarshal([]byte(body), &s); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v: %s", resp.Status, err, body)
	}
	return s
}

// What is done through listproxy is seen on the page, and the page says the same as metrics.
func TestStatusTellsWhatHappened(t *testing.T) {
	client := clientOf(t, proxy.RESTConfig(cp.RESTConfig(controlplane.Admin)))
	agent := func(name string) http.Header {
		return http.Header{"User-Agent": {name + " (linux/amd64) kubernetes/abc"}, "Accept": {"application/json"}}
	}
	before := status(t)
	const lists = "/api/v1/namespaces"
	failed := int64(0) // reviews: such lists are forwarded, too
	for range 3 {
		got := ""
		poll.Reviewed(t.Context(), patience, func() string {
			resp, _ := ask(t, client, proxy.URL()+lists+"?resourceVersion=0", agent("hits/1"))
			if got = resp.Header.Get("Cache-Status"); got == poll.ReviewFailed {
				failed++
			}
			return got
		})
		if got != "listproxy; hit; detail=any" {
			t.Fatalf("Cache-Status is %q", got)
		}
	}
	for range 2 {
		ask(t, client, proxy.URL()+lists, agent("recent/1"))
	}
	ask(t, client, proxy.URL()+lists+"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1", agent("informer/1"))

	// A request is counted after its answer has ended.
	poll.Until(t, patience, "every request is counted", func() bool {
		now := status(t)
		return now.Lists.Answered-before.Lists.Answered >= 3 && now.Lists.Forwarded-before.Lists.Forwarded >= 2+failed &&
			now.Lists.Streaming-before.Lists.Streaming >= 1
	})
	now := status(t)
	if !now.Healthy || now.Version == "" || now.Uptime <= 0 || now.Upstream != cp.URL() || now.Lists.Share == nil {
		t.Errorf("the status is %+v", now)
	}
	for name, reason := range map[string]string{"recent/1": "most-recent", "informer/1": "streaming"} {
		found := false
		for _, c := range now.Callers {
			found = found || c.UserAgent == name && c.Reason == reason
		}
		if !found {
			t.Errorf("%s is not among callers for %s: %+v", name, reason, now.Callers)
		}
	}
	found := false
	for _, c := range now.Collections {
		if c.Name() == "namespaces/json" {
			found = c.State == statusz.StateLive && c.Objects >= 4 && len(c.Spans) == 1 && c.Revision > 0 && c.Window == 150 && c.Lag != nil && c.SelfCheck.Mismatches == 0
		}
	}
	if !found {
		t.Errorf("collections: %+v", now.Collections)
	}
	if now.SelfChecks.Interval != 300 || len(now.SelfChecks.Mismatches) != 0 {
		t.Errorf("self-checks: %+v", now.SelfChecks)
	}
	_, metrics := ask(t, http.DefaultClient, proxy.AdminURL()+"/metrics", nil)
	if want := fmt.Sprintf(`listproxy_saved_lists_total{resource="namespaces"} %d`, now.Lists.Answered); !strings.Contains(metrics, want) {
		t.Errorf("metrics do not say %s", want)
	}
	// The page for people, as the process has it.
	resp, page := ask(t, http.DefaultClient, proxy.AdminURL()+"/statusz", nil)
	if !strings.HasPrefix(resp.Header.Get("Content-Security-Policy"), "default-src 'none'") || !strings.Contains(page, "✓ healthy") {
		t.Errorf("the page: %v\n%s", resp.Header, page)
	}
	if line := `level=ACCESS msg=request method=GET target="list namespaces v1"`; !strings.Contains(proxy.Log(), line) {
		t.Errorf("no line has %s", line)
	}
}

// The flags in force are those of the process, and there is no secret among them.
func TestFlagz(t *testing.T) {
	resp, text := ask(t, http.DefaultClient, proxy.AdminURL()+"/flagz", nil)
	for _, line := range []string{"\neager=[namespaces]\n", "\ndebug-pprof=true\n", "\nhistory-window=2m30s\n"} {
		if !strings.Contains(text, line) {
			t.Errorf("%s: /flagz does not say %q: %s", resp.Status, line, text)
		}
	}
}

func TestProfiles(t *testing.T) {
	resp, body := ask(t, http.DefaultClient, proxy.AdminURL()+"/debug/pprof/goroutine?debug=1", nil)
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(body, "goroutine profile:") {
		t.Errorf("%s: %.200s", resp.Status, body)
	}
}

// Where clients are, nothing of this can be reached: the paths are forwarded like any other, and
// kube-apiserver, which has some of them too, answers to everybody as it does without listproxy.
func TestPagesAreNotPublic(t *testing.T) {
	// These differ from one answer to the next: kube-apiserver chooses what parts names and values
	// at random (k8s.io/component-base, zpages).
	changes := regexp.MustCompile(`(?m)^(Started|Up).*$|[:= ]+`)
	for _, user := range []string{controlplane.Admin, controlplane.Alice, controlplane.Anonymous} {
		direct := cp.RESTConfig(user)
		via := proxy.RESTConfig(direct)
		for _, path := range []string{"/statusz", "/statusz?format=json", "/flagz", "/debug/pprof/", "/debug/pprof/cmdline", "/metrics/listproxy"} {
			want, wantBody := ask(t, clientOf(t, direct), cp.URL()+path, nil)
			got, gotBody := ask(t, clientOf(t, via), proxy.URL()+path, nil)
			if got.StatusCode != want.StatusCode || got.Header.Get("Content-Type") != want.Header.Get("Content-Type") {
				t.Errorf("%s gets %s of %s (%s), want %s (%s)", user, path, got.Status, got.Header.Get("Content-Type"), want.Status, want.Header.Get("Content-Type"))
			}
			if path != "/debug/pprof/" { // it counts goroutines
				if diff := cmp.Diff(changes.ReplaceAllString(wantBody, ""), changes.ReplaceAllString(gotBody, "")); diff != "" {
					t.Errorf("%s gets %s (-direct +via):\n%s", user, path, diff)
				}
			}
			if got := got.Header.Get("Cache-Status"); !strings.HasPrefix(got, "listproxy; fwd=bypass") {
				t.Errorf("%s %s has Cache-Status %q", user, path, got)
			}
		}
	}
}
