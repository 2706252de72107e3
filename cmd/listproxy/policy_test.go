package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
)

// listproxy runs the command and returns what it writes.
func listproxy(args ...string) (string, error) {
	var out bytes.Buffer
	cmd := newCommand()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	err := cmd.Execute()
	return out.String(), err
}

// policyFile writes a policy file, whose body begins in line 3.
func policyFile(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	text := "apiVersion: listproxy.io/v1alpha1\nkind: Policy\n" + body
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func expectWords(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q is missing in:\n%s", word, text)
		}
	}
}

// TestDocumentedCommands runs what docs/policy.md shows, and compares.
func TestDocumentedCommands(t *testing.T) {
	t.Chdir("../..")
	text, err := os.ReadFile("docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```console\n\\$ listproxy ([^\n]*)\n(.*?)^```$").FindAllSubmatch(text, -1)
	if len(blocks) < 5 {
		t.Fatalf("only %d commands", len(blocks))
	}
	word := regexp.MustCompile(`'[^']*'|\S+`)
	for _, block := range blocks {
		line, want := string(block[1]), string(block[2])
		t.Run(line, func(t *testing.T) {
			args := word.FindAllString(line, -1)
			for i := range args {
				args[i] = strings.Trim(args[i], "'")
			}
			got, err := listproxy(args...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("documented otherwise (-documented +got):\n%s", diff)
			}
		})
	}
}

func TestPolicyCheckOfAWrongFile(t *testing.T) {
	path := policyFile(t, "defaults:\n  cache: eager\nresources:\n- {group: '', resource: pods, idleTimeout: 1}\n")
	out, err := listproxy("policy", "check", path)
	if err == nil {
		t.Fatalf("accepted: %s", out)
	}
	if out != "" {
		t.Errorf("an error, and output: %s", out)
	}
	expectWords(t, err.Error(), path+":4: defaults.cache", path+":6: resources[0].idleTimeout")
	if _, err := listproxy("policy", "check", path+".not"); err == nil {
		t.Error("a file that is not there is accepted")
	}
	if _, err := listproxy("policy", "check"); err == nil {
		t.Error("no file is accepted")
	}
}

func TestPolicyCheckOfDefaults(t *testing.T) {
	out, err := listproxy("policy", "check", policyFile(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	expectWords(t, out, ": ok\n", "everything else       onDemand  all", "--history-window  --cache-bytes  --idle-timeout  ignore", "secrets", "built-in default")
}

func TestPolicyExplain(t *testing.T) {
	config := policyFile(t, "resources:\n- {group: '', resource: pods, representations: [json], limitAtZero: honour, historyWindow: 5m}\n- {group: x.example.com, resource: ys, sameForEveryone: true}\n"+
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
		{"a watch, where it is on", []string{"GET", "/api/v1/pods?watch=true&resourceVersion=5", "--watches"}, []string{"detail=after\n", "what happens after revision 5", "may watch it"}, "limit"},
		{"a streaming list", []string{"GET", "/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "--watches"}, []string{"detail=most-recent\n", "then            what happens after it, as a watch", "comes within 3s"}, "limit"},
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
			out, err := listproxy(append([]string{"policy", "explain", "--config", config}, test.args...)...)
			if err != nil {
				t.Fatal(err)
			}
			expectWords(t, out, test.says...)
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
		out, err := listproxy(append([]string{"policy", "explain"}, test.args...)...)
		if err == nil {
			t.Errorf("%q: accepted as %s", test.args, out)
			continue
		}
		expectWords(t, err.Error(), test.says)
	}
}

// TestConfigAndEager: what both name is loaded once, and what the policy leaves out is an error.
func TestConfigAndEager(t *testing.T) {
	config := policyFile(t, `resources:
- {group: '', resource: pods, version: v1, cache: eager, representations: [protobuf, json]}
- {group: '', resource: nodes, cache: never}
- {group: '', resource: services, representations: [protobuf]}
`)
	o, err := parse("--config", config, "--eager", "pods,configmaps")
	if err != nil {
		t.Fatal(err)
	}
	want := []policy.EagerCollection{
		{Version: "v1", Resource: "pods", Representation: media.Protobuf},
		{Version: "v1", Resource: "pods", Representation: media.JSON},
		{Version: "v1", Resource: "configmaps", Representation: media.JSON},
	}
	if diff := cmp.Diff(want, o.eagerly); diff != "" {
		t.Errorf("eager (-want +got):\n%s", diff)
	}
	for _, test := range []struct {
		args []string
		says []string
	}{
		{[]string{"--config", config, "--eager", "nodes"}, []string{"--eager", `"nodes" is never kept`, config + ":5"}},
		{[]string{"--config", config, "--eager", "services"}, []string{"--eager", `"services" is not kept as JSON`, config + ":6"}},
		{[]string{"--config", config + ".not"}, []string{"--config", "no such file"}},
		{[]string{"--config", policyFile(t, "x: y\n")}, []string{"--config", `policy.yaml:3: unknown field "x"`}},
	} {
		_, err := parse(test.args...)
		if err == nil {
			t.Errorf("%q: accepted", test.args)
			continue
		}
		expectWords(t, err.Error(), test.says...)
	}
}
