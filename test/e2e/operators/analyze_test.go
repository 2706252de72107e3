package operators

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/listproxy/listproxy/cmd/listproxy/analyze"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/informers"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
)

const (
	// lastPath is the list that clients send last, repeats times. A log that has these lists has all.
	lastPath = "/api/v1/events"
	repeats  = 3
)

// TestForecast: listproxy analyze forecasts from kube-apiserver's audit log of some clients how many of their lists and
// watches come from memory, and so many do when the same clients go through listproxy. Requests that are forwarded for a
// passing reason are added: the first of a caller or a resource, and those with a late review.
// The test runs alone, since the log has the requests of other tests as well.
func TestForecast(t *testing.T) {
	configMaps := kinds.Kind{APIVersion: "v1", Name: "ConfigMap", Plural: "configmaps"}
	for _, name := range []string{"f-one", "f-two", "f-three"} {
		expect.NoError(t, direct.Ensure(t.Context(), configMaps.Path(controlplane.TeamB), configMaps.Object(name)))
	}
	own := cp.RESTConfig(controlplane.Admin)

	before, err := os.ReadFile(upstreamLog)
	expect.NoError(t, err)
	runClients(t, own)
	var log []byte
	poll.Until(t, patience, "the last lists in kube-apiserver's log", func() bool {
		log, err = os.ReadFile(upstreamLog)
		return err == nil && bytes.Count(log[len(before):], []byte(`"requestURI":"`+lastPath+`"`)) == repeats
	})
	audit := filepath.Join(t.TempDir(), "audit.log")
	expect.NoError(t, os.WriteFile(audit, log[len(before):], 0o600))

	forecast := analyzeLog(t, audit)
	t.Logf("forecast: %+v", forecast.Totals)
	lists, watches := forecast.Totals.Lists, forecast.Totals.Watches
	if lists.FromMemory == 0 || lists.WithConsistentLists == 0 || lists.Forwarded == 0 || watches.WithWatches == 0 || watches.Forwarded == 0 {
		t.Errorf("the clients did not send requests of every kind: %+v", forecast.Totals)
	}

	p := harness.RunProxy(t, harness.ProxyOptions{
		Upstream: cp.RESTConfig(controlplane.Feed),
		Args:     []string{"--consistent-lists=always", "--watches"},
	})
	runClients(t, p.RESTConfig(own))
	for verb, forecast := range map[string]analyze.Answers{"list": lists, "watch": watches} {
		count := func(labels map[string]string) (n int64) {
			labels["verb"] = verb
			sum, _, err := p.Metric(t.Context(), "listproxy_requests_total", labels)
			expect.NoError(t, err)
			return int64(sum)
		}
		poll.Until(t, patience, fmt.Sprintf("listproxy's metrics count %d requests of verb %s", forecast.Count, verb), func() bool {
			return count(map[string]string{}) == forecast.Count
		})
		var passing int64
		for _, why := range []reason.Reason{
			reason.UnknownCaller, reason.Warming, reason.NotProven, reason.History, reason.Stale, reason.ReviewFailed,
		} {
			passing += count(map[string]string{"reason": string(why)})
		}
		want := forecast.FromMemory + forecast.WithConsistentLists + forecast.WithWatches
		served := count(map[string]string{"decision": "serve"})
		if served == 0 || want != served+passing {
			t.Errorf("%s: %d came from memory and %d were forwarded for a passing reason, want %d together", verb, served, passing, want)
		}
		t.Logf("%s: of %d, %d came from memory and %d were forwarded for a passing reason", verb, forecast.Count, served, passing)
	}
}

// runClients sends the requests of some typical clients of a cluster: the same in each call.
func runClients(t *testing.T, cfg *rest.Config) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	informing, stop := context.WithCancel(ctx)
	for _, resource := range []string{"pods", "configmaps"} {
		informer := informers.New(cfg, informers.Dynamic, corev1.SchemeGroupVersion.WithResource(resource), informers.Options{})
		expect.NoError(t, informers.Start(informing, informer))
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			t.Fatalf("the informer of %s does not sync", resource)
		}
	}
	stop()

	named := func(name string) *ask.Client {
		return ask.MustNew(t, cfg, patience).With("User-Agent", name+"/v1")
	}
	get := func(from *ask.Client, accept, target string) ask.Answer {
		t.Helper()
		a, err := from.GetAs(ctx, accept, target)
		expect.NoError(t, err)
		if a.Code != http.StatusOK {
			t.Fatalf("%s: %s", target, a)
		}
		return a
	}
	const maps, pages = "/api/v1/configmaps", "/api/v1/namespaces/" + controlplane.TeamB + "/configmaps?"
	const table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
	kubectl, inventory, collector, script := named("kubectl"), named("inventory"), named("collector"), named("script")
	get(kubectl, table, maps+"?limit=500")
	get(kubectl, ask.JSON, maps+"?"+ask.AnyVersion)
	get(kubectl, ask.JSON, "/api/v1/namespaces")
	for range 5 {
		get(inventory, ask.JSON, maps)
		get(collector, ask.Metadata, maps+"?"+ask.AnyVersion)
		get(inventory, ask.Protobuf, "/api/v1/secrets?"+ask.AnyVersion)
		for query := "limit=2"; ; {
			page, err := ask.ReadList(get(inventory, ask.Protobuf, pages+query).Body)
			expect.NoError(t, err)
			if page.Next == "" {
				break
			}
			query = ask.NextPage(2, page.Next)
		}
	}
	for range repeats {
		since := "resourceVersion=" + get(script, ask.JSON, maps+"?"+ask.AnyVersion).Meta().ResourceVersion
		var watching sync.WaitGroup // each watch ends after its timeoutSeconds
		for _, w := range []struct{ accept, path, query string }{
			{ask.JSON, maps, ""},
			{ask.JSON, maps, "resourceVersion=0&"},
			{ask.JSON, maps, since + "&"},
			{ask.JSON, maps, "fieldSelector=metadata.name%3Df-one&" + since + "&"},
			{ask.Protobuf, maps, "allowWatchBookmarks=true&" + since + "&"},
			{"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", maps, since + "&"},
			{ask.JSON, "/api/v1/secrets", since + "&"},
		} {
			watching.Go(func() {
				target := w.path + "?" + w.query + "timeoutSeconds=1&watch=true"
				if a, err := script.GetAs(ctx, w.accept, target); err != nil || a.Code != http.StatusOK {
					t.Errorf("%s: %s, %v", target, a, err)
				}
			})
		}
		watching.Wait()
	}
	for _, target := range []string{
		maps + "?resourceVersion=0", maps + "?resourceVersion=1&resourceVersionMatch=NotOlderThan",
		maps + "?resourceVersion=0&labelSelector=" + url.QueryEscape("a in (b)"),
		maps + "?resourceVersion=0&unheard=of", "/apis/apps/v1/deployments", lastPath,
	} {
		for range repeats {
			get(script, ask.JSON, target)
		}
	}
}

// analyzeLog returns the report of listproxy analyze on an audit log.
func analyzeLog(t *testing.T, log string) analyze.Report {
	t.Helper()
	program, err := harness.BuildProxy()
	expect.NoError(t, err)
	var problems bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, "analyze", "--output", "json", log) // #nosec G204 -- the tests' own words
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil || strings.TrimSpace(problems.String()) != "" {
		t.Fatalf("%v: %s", err, &problems)
	}
	var report analyze.Report
	expect.NoError(t, json.Unmarshal(out, &report))
	return report
}
