package operators

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/soak"
)

// TestPriceOfAProbe: in priority and fairness, kube-apiserver takes several seats for a list of
// large objects, by their size (a seat for each 100 kB), and one for each of listproxy's probes, which
// count as one object of average size.
func TestPriceOfAProbe(t *testing.T) {
	harness.Long(t)
	priced := harness.RunControlPlane(t, controlplane.Options{APIServerArgs: []string{"--etcd-count-metric-poll-period=1s"}})
	if version.MustParseGeneric(priced.Version()).LessThan(version.MustParseGeneric("1.34")) {
		t.Skip("the API server counts objects, whatever their size")
	}
	const maps = "/api/v1/namespaces/" + controlplane.TeamA + "/configmaps"
	admin, feed := priced.RESTConfig(controlplane.Admin), priced.RESTConfig(controlplane.Feed)
	server := ask.MustNew(t, admin, patience)
	// Only listproxy's user is in this one.
	schema := kinds.Kind{APIVersion: "flowcontrol.apiserver.k8s.io/v1", Name: "FlowSchema"}.Object("of-listproxy")
	schema["spec"] = kinds.Fields{
		"priorityLevelConfiguration": kinds.Fields{"name": "workload-low"}, "matchingPrecedence": 100,
		"rules": []kinds.Fields{{
			"subjects": []kinds.Fields{{"kind": "User", "user": kinds.Fields{"name": controlplane.FeedUserName}}},
			"resourceRules": []kinds.Fields{{
				"verbs": []string{"*"}, "apiGroups": []string{"*"}, "resources": []string{"*"}, "namespaces": []string{"*"}, "clusterScope": true,
			}},
		}},
	}
	if _, err := server.Do(t.Context(), http.MethodPost, "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", schema); err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		object := kinds.Kind{APIVersion: "v1", Name: "ConfigMap"}.Object(fmt.Sprint("map-", i))
		object["data"] = kinds.Fields{"large": strings.Repeat("kubernetes ", 5_000)}
		if _, err := server.Do(t.Context(), http.MethodPost, maps, object); err != nil {
			t.Fatal(err)
		}
	}
	client, err := rest.HTTPClientFor(admin)
	expect.NoError(t, err)
	// price is how many requests of listproxy's user there were, and how many seats they took.
	price := func() (requests uint64, seats float64) {
		t.Helper()
		expect.NoError(t, soak.Families(t.Context(), client, priced.URL()+"/metrics", func(family *dto.MetricFamily) {
			if family.GetName() != "apiserver_flowcontrol_work_estimated_seats" {
				return
			}
			for _, series := range family.GetMetric() {
				for _, l := range series.GetLabel() {
					if l.GetName() == "flow_schema" && l.GetValue() == "of-listproxy" {
						requests += series.GetHistogram().GetSampleCount()
						seats += series.GetHistogram().GetSampleSum()
					}
				}
			}
		}))
		return requests, seats
	}
	lister := ask.MustNew(t, feed, patience)
	poll.Until(t, patience, "kube-apiserver knows how large they are", func() bool {
		requests, seats := price()
		_, err := lister.Get(t.Context(), maps)
		expect.NoError(t, err)
		requestsAfter, seatsAfter := price()
		return seatsAfter-seats > float64(requestsAfter-requests)
	})

	p := harness.RunProxy(t, harness.ProxyOptions{Upstream: feed, Args: []string{"--eager", "configmaps", "--consistent-lists=always"}})
	proxy := ask.MustNew(t, p.RESTConfig(admin), patience)
	proven := func() bool {
		answer, err := proxy.Get(t.Context(), maps)
		expect.NoError(t, err)
		return answer.FromMemory()
	}
	poll.Until(t, patience, "the newest state from memory", proven)
	requests, seats := price()
	for range 10 {
		poll.Until(t, patience, "the newest state from memory, once more", proven)
	}
	requestsAfter, seatsAfter := price()
	probes, took := requestsAfter-requests, seatsAfter-seats
	if t.Logf("kube-apiserver %s: %d probes, %.0f seats", priced.Version(), probes, took); probes == 0 || took != float64(probes) {
		t.Errorf("%d probes took %.0f seats", probes, took)
	}
}

// TestFlowSchema: by docs/flow-schema.yaml, kube-apiserver sorts what the chart's account asks for.
func TestFlowSchema(t *testing.T) {
	const name = "listproxy" // of the schema, the account and its namespace
	expect.NoError(t, cp.ApplyDocs(t.Context(), "flow-schema.yaml"))
	admin := ask.MustNew(t, cp.RESTConfig(controlplane.Admin), patience)
	expect.NoError(t, admin.Ensure(t.Context(), "/api/v1/namespaces", kinds.Namespace(name)))
	token, err := cp.CreateServiceAccountToken(t.Context(), name, name)
	expect.NoError(t, err)
	answer, err := admin.Get(t.Context(), "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/"+name)
	expect.NoError(t, err)
	config := cp.RESTConfig(controlplane.Anonymous)
	config.BearerToken = token
	account := ask.MustNew(t, config, patience)
	for _, target := range []string{"/api/v1/pods?limit=1", "/version"} {
		poll.Until(t, patience, target+" is sorted so", func() bool {
			got, err := account.Get(t.Context(), target)
			expect.NoError(t, err)
			return got.Header.Get("X-Kubernetes-Pf-Flowschema-Uid") == answer.Meta().UID
		})
	}
}
