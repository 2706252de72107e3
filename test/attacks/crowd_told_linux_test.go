package attacks

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// askedByStrangers is what differs in whether it exists, is kept, or is another server's.
var askedByStrangers = map[string]string{
	"a resource in memory":      "/api/v1/pods?resourceVersion=0",
	"one that is not asked for": "/api/v1/limitranges?resourceVersion=0",
	"one that is not kept":      "/api/v1/secrets?resourceVersion=0",
	"one that does not exist":   "/api/v1/widgets?resourceVersion=0",
	"an unknown version":        "/apis/apps/v9/deployments?resourceVersion=0",
	"an unknown group":          "/apis/nobody.example.com/v1/things?resourceVersion=0",
	"an aggregated API":         "/apis/metrics.example.com/v1/nodes?resourceVersion=0",
	"a custom resource":         "/apis/crowd.example.com/v1/gadgets?resourceVersion=0",
	"what cannot be listed":     "/apis/authentication.k8s.io/v1/tokenreviews?resourceVersion=0",
}

// aggregatedAPI is of a server that is not there, and gadgets are a custom resource.
const aggregatedAPI = `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.metrics.example.com}
spec:
  group: metrics.example.com
  version: v1
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {name: nobody, namespace: default}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.crowd.example.com}
spec:
  group: crowd.example.com
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// told asks with made-up tokens, and returns what was said of each resource: the status, and the Cache-Status.
func (s *side) told() map[string]string {
	s.Helper()
	said := map[string]string{}
	for what, target := range askedByStrangers {
		client := s.client(crowdAddress, nil)
		res, err := s.open(s.Context(), client, madeUp(s, 0), target)
		s.must(err)
		_ = res.Body.Close()
		client.CloseIdleConnections()
		said[what] = strings.TrimSpace(fmt.Sprintf("%d %s", res.StatusCode, res.Header.Get("Cache-Status")))
	}
	return said
}

// testTold: to a token that nobody gave out, all resources are the same.
func testTold(t *testing.T, r *crowdRig, tables *crowdTables) {
	t.Helper()
	if err := r.plane.Apply(t.Context(), aggregatedAPI); err != nil {
		t.Fatal(err)
	}
	direct := r.directly(t).told()
	via := r.through(t, crowding{}).told()
	different := map[string]bool{}
	for what, said := range via {
		different[said] = true
		code := fmt.Sprint(http.StatusUnauthorized)
		if !strings.HasPrefix(said, code) || direct[what] != code {
			t.Errorf("%s: %q, directly %q", what, said, direct[what])
		}
	}
	if len(different) != 1 {
		heard := strings.Join(slices.Sorted(maps.Keys(different)), "; ")
		t.Errorf("a made-up token hears %d things: %s", len(different), heard)
	}
	for _, what := range slices.Sorted(maps.Keys(via)) {
		tables.told(what, via[what], direct[what])
	}
}
