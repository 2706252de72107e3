package explain

import (
	"strings"
	"testing"

	"github.com/listproxy/listproxy/cmd/listproxy/cli/clitest"
	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/expect"
)

func TestPolicyExplain(t *testing.T) {
	config := clitest.PolicyFile(t, "resources:\n- {group: '', resource: pods, representations: [json], limitAtZero: honour, historyWindow: 5m}\n- {group: x.example.com, resource: ys, sameForEveryone: true}\n"+
		"- {group: apps, resource: deployments, consistentLists: true, newestAsAny: [{user: jane}, {group: pollers}, {serviceAccount: ci/builder}]}\n"+
		"- {group: apps, resource: daemonsets, consistentLists: false}\n")
	token := policy.EncodeContinue(4711, "ns/x\x00")
	for _, test := range []struct {
		name string
		args []string
		says []string
		not  string
	}{
		{"page at any revision", []string{"get", "/api/v1/pods?resourceVersion=0&limit=5"}, []string{"detail=any", "limit           5\n", "the whole resource", "policy.yaml:4: cache onDemand"}, "ignored"},
		{"exact", []string{"GET", "https://proxy:8443/api/v1/namespaces/ns/pods?resourceVersion=7&limit=5"}, []string{"detail=exact", "the state at revision 7", "namespace ns", "knows revision 7 (history: 5m0s)"}, ""},
		{"not older", []string{"GET", "/api/v1/nodes?resourceVersion=7"}, []string{"detail=not-older-than", "revision 7 or later", "limit           none", "history: --history-window", "built-in default"}, ""},
		{"continue", []string{"GET", "/api/v1/pods?limit=5&continue=" + token}, []string{"detail=continue", "the next page of the state at revision 4711", `"ns/x\x00"`}, ""},
		{"selectors", []string{"GET", "/api/v1/pods?resourceVersion=0&labelSelector=a%3Db&fieldSelector=metadata.namespace%3Dns"}, []string{"a=b", "metadata.namespace=ns", "names fields that the resource has", "with and without namespaces"}, ""},
		{"most recent", []string{"GET", "/api/v1/pods"}, []string{"forwarded   most-recent", reason.MostRecent.Explain()}, "Cache-Status"},
		{"most recent, where it is on", []string{"GET", "/api/v1/pods?limit=5", "--consistent-lists=always"}, []string{"detail=most-recent\n", "everything that was written before the list came", "limit           5\n", "the proof       that it holds everything written comes within --consistent-wait\n"}, "sooner"},
		{"a watch", []string{"GET", "/api/v1/pods?watch=true&resourceVersion=5"}, []string{"forwarded  watch"}, "from memory"},
		{"a watch, where it is on", []string{"GET", "/api/v1/pods?watch=true&resourceVersion=5", "--watches"}, []string{"detail=after\n", "what happens after revision 5", "may watch this"}, "limit"},
		{"a streaming list", []string{"GET", "/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "--watches"}, []string{"detail=most-recent\n", "then            what happens after it, as a watch", "comes within 10s"}, "limit"},
		{"most recent, in the policy", []string{"GET", "/apis/apps/v1/deployments"}, []string{"detail=most-recent\n", "sooner than kube-apiserver's own answer", "newestAsAny     user jane, group pollers, service account ci/builder"}, "newest-as-any"},
		{"most recent, but not in the policy", []string{"GET", "/apis/apps/v1/daemonsets", "--consistent-lists"}, []string{"forwarded   most-recent"}, "newestAsAny"},
		{"any for the newest state", []string{"GET", "/apis/apps/v1/deployments?limit=5", "--as", "system:serviceaccount:ci:builder"}, []string{"detail=any; newest-as-any\n", "the newest state that listproxy knows", "limit           5\n"}, "the proof"},
		{"by a group", []string{"GET", "/apis/apps/v1/deployments", "--as", "x", "--as-group", "y", "--as-group", "pollers"}, []string{"detail=any; newest-as-any\n"}, "the proof"},
		{"not for the caller", []string{"GET", "/apis/apps/v1/deployments", "--as", "joe"}, []string{"detail=most-recent\n"}, "newest-as-any"},
		{"not with a revision", []string{"GET", "/apis/apps/v1/deployments?resourceVersion=7", "--as", "jane"}, []string{"detail=not-older-than\n"}, "newestAsAny"},
		{"not with a token", []string{"GET", "/apis/apps/v1/deployments?limit=5&continue=" + token, "--as", "jane"}, []string{"detail=continue\n"}, "newestAsAny"},
		{"a form that is not kept", []string{"GET", "/api/v1/pods?resourceVersion=0", "--header", "Accept: application/vnd.kubernetes.protobuf"}, []string{"not-cached", "keeps it as json, and the answer would be protobuf"}, ""},
		{"protobuf of a custom resource", []string{"GET", "/apis/example.com/v1/widgets?resourceVersion=0", "--custom", "--header", "Accept: application/vnd.kubernetes.protobuf"}, []string{"forwarded   representation"}, ""},
		{"a selector that cannot be paged", []string{"GET", "/api/v1/pods?resourceVersion=0&limit=5&fieldSelector=metadata.namespace%3Dns"}, []string{"forwarded   selector"}, ""},
		{"a selector on any kind", []string{"GET", "/apis/certificates.k8s.io/v1/podcertificaterequests?resourceVersion=0&fieldSelector=metadata.namespace%3Dns"}, []string{"forwarded   selector"}, ""},
		{"vouched", []string{"GET", "/apis/x.example.com/v1/ys?resourceVersion=0"}, []string{"sameForEveryone", "policy.yaml:5"}, ""},
		{"secrets", []string{"GET", "/api/v1/secrets?resourceVersion=0"}, []string{"not-cached", "built-in default: cache never"}, ""},
		{"a write", []string{"POST", "/api/v1/pods"}, []string{"forwarded  not-list"}, ""},
		{"a browser", []string{"GET", "/api/v1/pods?resourceVersion=0", "--header", "User-Agent: curl/8"}, []string{"detail=any", "representation  json, indented, as a built-in resource", "would be many times as long"}, ""},
		{"no browser", []string{"GET", "/api/v1/pods?resourceVersion=0&pretty=0", "--header", "User-Agent: curl/8"}, []string{"representation  json, as a built-in resource"}, "indented"},
		{"basic authentication", []string{"GET", "/api/v1/pods?resourceVersion=0", "--header", "authorization: Basic eDp5"}, []string{"forwarded  anonymous"}, ""},
		{"two callers", []string{"GET", "/api/v1/pods?resourceVersion=0", "--header", "Authorization: Bearer a", "--header", "Authorization: Bearer b"}, []string{"forwarded  credentials"}, ""},
		{"another spelling", []string{"GET", "/api/v1/p%6fds?resourceVersion=0"}, []string{"forwarded  not-canonical"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, out, err := clitest.Execute(t, NewCommand("listproxy-explain/v1"), append([]string{"--config", config}, test.args...)...)
			expect.NoError(t, err)
			clitest.Says(t, out, test.says...)
			if test.not != "" && strings.Contains(out, test.not) {
				t.Errorf("%q is in:\n%s", test.not, out)
			}
		})
	}
}

func TestPolicyExplainOfNoRequest(t *testing.T) {
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{"GET", "api/v1/pods"}, "neither a path"},
		{[]string{"GET", "ftp://x/api/v1/pods"}, "neither a path"},
		{[]string{"GET", "/api/v1/pods?labelSelector=a in (b)"}, "no spaces"},
		{[]string{"GET", "/api/v1/pods%zz"}, "not a request"},
		{[]string{"GET", "/api/v1/pods", "--header", "Accept"}, "Name: value"},
		{[]string{"GET", "/api/v1/pods", "--header", "A: b\r\nC: d"}, "Name: value"},
		{[]string{"GET", "/api/v1/pods", "--config", "/nowhere/policy.yaml"}, "--config"},
		{[]string{"GET", "/api/v1/pods", "--consistent-lists=maybe"}, `--consistent-lists "maybe": choose true, always or false`},
		{[]string{"GET"}, "takes 2 arguments, not 1"},
	} {
		_, out, err := clitest.Execute(t, NewCommand("listproxy-explain/v1"), test.args...)
		if err == nil {
			t.Errorf("%q: accepted as %s", test.args, out)
			continue
		}
		clitest.Says(t, err.Error(), test.says)
	}
}
