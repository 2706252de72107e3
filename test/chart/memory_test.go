package chart

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/listproxy/listproxy/test/expect"
)

// TestMemory: bounds follow from the memory limit, and leave what listproxy needs beside them.
func TestMemory(t *testing.T) {
	t.Parallel()
	for limit, want := range map[string]map[string]string{
		"1Gi":   {"GOMEMLIMIT": "921MiB", "cache-bytes": "242Mi", "max-inflight-bytes": "128Mi", "max-long-running-requests": "1024"},
		"4Gi":   {"GOMEMLIMIT": "3686MiB", "cache-bytes": "1881Mi", "max-inflight-bytes": "512Mi", "max-long-running-requests": "4096"},
		"1.5Gi": {"GOMEMLIMIT": "1382MiB", "cache-bytes": "516Mi", "max-inflight-bytes": "192Mi", "max-long-running-requests": "1536"},
		"64G":   {"GOMEMLIMIT": "54931MiB", "cache-bytes": "32248Mi", "max-inflight-bytes": "7629Mi", "max-long-running-requests": "20000"},
		"''":    {},
	} {
		t.Run(limit, func(t *testing.T) {
			got := memoryOf(t, "resources: {limits: {memory: "+limit+"}}")
			// As where helm upgrade reuses the values of a chart that did not have these yet.
			without := memoryOf(t, "{maxLongRunningRequests: null, resources: {limits: {memory: "+limit+"}}}")
			if diff := cmp.Diff(got, without); diff != "" {
				t.Errorf("without values (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
			if len(want) == 0 {
				return
			}
			mebi := func(text string) int64 {
				q := resource.MustParse(strings.TrimSuffix(text, "B"))
				return q.Value() >> 20
			}
			all, runtime := mebi(limit), mebi(got["GOMEMLIMIT"])
			// cmd/listproxy/memory.go
			kept := mebi(got["cache-bytes"]) * 9 / 8 // compressed lists too
			needs := kept*3/2 + 512
			if needs > runtime || runtime > all*9/10 {
				t.Errorf("%d MiB are needed, of %d for Go and %d in all", needs, runtime, all)
			}
			// The most that connections, heads that are not whole, requests in flight and watches take,
			// by test/faults/limits, beside what is stored, if there is hardly any garbage.
			connections := min(runtime, 20_000)
			watches, err := strconv.ParseInt(got["max-long-running-requests"], 10, 64)
			watches += watches / 8 // of callers who are not accepted yet
			held := kept + connections/8 + 128 + 320 + watches*61>>10
			if err != nil || held > runtime {
				t.Errorf("%d MiB may be held, of %d for Go: %v", held, runtime, err)
			}
		})
	}
	t.Run("given", func(t *testing.T) {
		got := memoryOf(t, "{resources: {limits: {memory: 1Gi}}, cache: {bytes: 64Mi, inflightBytes: 2Mi}, maxLongRunningRequests: 30000}")
		want := map[string]string{"GOMEMLIMIT": "921MiB", "cache-bytes": "64Mi", "max-inflight-bytes": "2Mi", "max-long-running-requests": "30000"}
		expect.Same(t, want, got)
	})
}

// memoryOf returns what a pod is told about memory.
func memoryOf(t *testing.T, text string) map[string]string {
	t.Helper()
	pod := one[*appsv1.Deployment](t, objects(t, mustTemplate(t, text)), nil).Spec.Template.Spec
	got := map[string]string{}
	for _, env := range pod.Containers[0].Env {
		got[env.Name] = env.Value
	}
	for _, arg := range pod.Containers[0].Args {
		if flag, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "="); strings.HasSuffix(flag, "-bytes") || flag == "max-long-running-requests" {
			got[flag] = value
		}
	}
	return got
}
