package forwarding

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// TestLaggingCache: where the cache of the API server stays behind etcd for three seconds, 1.37 can
// answer lists of the newest state with 429 instead of reading etcd
// (ConsistentListFromCacheSkipTimeoutFallback, alpha). listproxy passes that on. It is no proof of
// anything, and no reason to give up what is known: lists that may be older come from memory all the
// time, and those of the newest state do again when the cache has caught up.
//
// The cache is held back by a conversion webhook that does not answer.
func TestLaggingCache(t *testing.T) {
	harness.Long(t)
	if !isSince("1.37") {
		t.Skip("the API server has no such answer")
	}
	var gate hop.Gate
	stored := kinds.Kind{APIVersion: "lag.listproxy.test/v1", Name: "Lag", Plural: "lags", ClusterScoped: true}
	converted := stored
	converted.APIVersion = "lag.listproxy.test/v2"
	definition := stored.Definition(kinds.Version(kinds.Open(nil)), kinds.Fields{
		"name": "v2", "served": true, "storage": false, "schema": kinds.Fields{"openAPIV3Schema": kinds.Open(nil)},
	})
	definition["spec"].(kinds.Fields)["conversion"] = startConversion(t, &gate)
	b := startBeside(t, "--feature-gates=ConsistentListFromCacheSkipTimeoutFallback=true", func(b beside) {
		b.create(t, kinds.Definitions, definition)
		poll.Until(t, patience, "both versions", func() bool {
			return b.get(t, b.server, ask.JSON, stored.Path("")).Code == http.StatusOK && b.get(t, b.server, ask.JSON, converted.Path("")).Code == http.StatusOK
		})
		b.create(t, stored.Path(""), stored.Object("one"))
	}, "--eager", converted.Eager(), "--consistent-lists=always", "--watches", "--staleness-bound", "1m")
	newest := converted.Path("")
	b.whole(t, newest, 1)

	gate.Shut()
	t.Cleanup(gate.Open) // else the webhook would wait for its requests
	b.create(t, stored.Path(""), stored.Object("two"))
	want, got := b.get(t, b.server, ask.JSON, newest), b.get(t, b.proxy, ask.JSON, newest)
	if want.Code != http.StatusTooManyRequests || want.Header.Get("Retry-After") == "" {
		t.Fatalf("the API server's answer is another one: %v, %s", want.Header, want)
	}
	wantForwarded(t, reply{cacheStatus: got.Source()}, "not-proven")
	numbers := regexp.MustCompile(`[0-9]+`) // how far etcd and the cache are
	if d := cmp.Diff(numbers.ReplaceAllString(string(want.Body), "N"), numbers.ReplaceAllString(string(got.Body), "N")); d != "" {
		t.Errorf("(-direct +via):\n%s", d)
	}
	if got.Code != want.Code || got.Header.Get("Retry-After") != want.Header.Get("Retry-After") {
		t.Errorf("%d with %v, not %d with %v", got.Code, got.Header, want.Code, want.Header)
	}
	if older := b.get(t, b.proxy, ask.JSON, newest+"?resourceVersion=0"); !older.FromMemory() {
		t.Errorf("what may be older is not from memory: %s", older)
	}

	gate.Open()
	b.whole(t, newest, 2)
}

// startConversion starts a webhook that gives objects another apiVersion, while the gate is open, and
// returns how a definition names it.
func startConversion(t *testing.T, gate *hop.Gate) kinds.Fields {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Request    struct {
				UID     string         `json:"uid"`
				Wanted  string         `json:"desiredAPIVersion"`
				Objects []kinds.Fields `json:"objects"`
			} `json:"request"`
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || gate.Pass(r.Context()) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		for _, object := range review.Request.Objects {
			object["apiVersion"] = review.Request.Wanted
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(kinds.Fields{
			"apiVersion": review.APIVersion, "kind": review.Kind, "response": kinds.Fields{
				"uid": review.Request.UID, "result": kinds.Fields{"status": "Success"}, "convertedObjects": review.Request.Objects,
			},
		})
	}))
	t.Cleanup(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return kinds.Fields{"strategy": "Webhook", "webhook": kinds.Fields{
		"conversionReviewVersions": []string{"v1"}, "clientConfig": kinds.Fields{"url": s.URL, "caBundle": ca},
	}}
}
