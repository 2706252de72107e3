package policy

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/expect"
)

const head = "apiVersion: listproxy.io/v1alpha1\nkind: Policy\n"

// mustParse returns the Config of a policy file with this body after the head. All switches are off.
func mustParse(t testing.TB, body string) *Config {
	t.Helper()
	f, err := ParseFile("p", []byte(head+body))
	expect.NoError(t, err)
	return f.Config(Switches{})
}

// TestEveryField: ParseFile reads every field, in YAML and in JSON. Comments and document marks may stand around the policy.
func TestEveryField(t *testing.T) {
	want := Rule{
		Cache:           CacheOnDemand,
		HistoryWindow:   time.Minute,
		LimitAtZero:     LimitHonoured,
		ConsistentLists: ConsistentAll,
		Watches:         true,
	}
	for _, text := range []string{
		"# A policy.\n---\n" + head + `resources:
- group: example.com
  resource: things
  cache: onDemand
  historyWindow: 60s
  limitAtZero: honour
  consistentLists: always
  watches: true
---
# The end.
`,
		`{"apiVersion": "listproxy.io/v1alpha1", "kind": "Policy", "resources": [
	{"group": "example.com", "resource": "things", "cache": "onDemand", "historyWindow": "1m", "limitAtZero": "honour",
	"consistentLists": "always", "watches": true}]}
`,
	} {
		f, err := ParseFile("p", []byte(text))
		expect.NoError(t, err)
		expect.Same(t, want, f.Config(Switches{}).RuleFor("example.com", "things"))
	}
}

// TestConsistentListsField: ParseFile reads the booleans and the string that consistentLists may be.
func TestConsistentListsField(t *testing.T) {
	for text, want := range map[string]ConsistentLists{
		"true": ConsistentLarge, "false": ConsistentNone, "always": ConsistentAll,
	} {
		if got := mustParse(t, "defaults: {consistentLists: "+text+"}\n").defaults.ConsistentLists; got != want {
			t.Errorf("consistentLists: %s is read as %q, want %q", text, got, want)
		}
	}
}

// TestInheritance: each setting comes from the most specific rule that has it, wherever the rule stands in the file: the
// resource's own, the rule for "*" of its group, or the defaults.
func TestInheritance(t *testing.T) {
	c := mustParse(t, `resources:
- {group: apps, resource: deployments, historyWindow: 3s}
- {group: apps, resource: "*", historyWindow: 2s, watches: false}
- {group: "", resource: "*", cache: never}
- {group: "", resource: pods, cache: onDemand}
- {group: "", resource: secrets, historyWindow: 4s}
defaults: {historyWindow: 1s, limitAtZero: honour, watches: true}
`)
	for resource, want := range map[string]Rule{
		"deployments.apps":     {Cache: CacheOnDemand, HistoryWindow: 3 * time.Second, LimitAtZero: LimitHonoured, Watches: false},
		"daemonsets.apps":      {Cache: CacheOnDemand, HistoryWindow: 2 * time.Second, LimitAtZero: LimitHonoured, Watches: false},
		"jobs.batch":           {Cache: CacheOnDemand, HistoryWindow: time.Second, LimitAtZero: LimitHonoured, Watches: true},
		"nodes":                {Cache: CacheNever, HistoryWindow: time.Second, LimitAtZero: LimitHonoured, Watches: true},
		"pods":                 {Cache: CacheOnDemand, HistoryWindow: time.Second, LimitAtZero: LimitHonoured, Watches: true},
		"secrets":              {Cache: CacheNever, HistoryWindow: 4 * time.Second, LimitAtZero: LimitHonoured, Watches: true},
		"events":               {Cache: CacheNever, HistoryWindow: time.Second, LimitAtZero: LimitHonoured, Watches: true},
		"events.events.k8s.io": {Cache: CacheNever, HistoryWindow: time.Second, LimitAtZero: LimitHonoured, Watches: true},
	} {
		gr := schema.ParseGroupResource(resource)
		if diff := cmp.Diff(want, c.RuleFor(gr.Group, gr.Resource)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", resource, diff)
		}
	}
}

// TestSecretsAndEvents: only a rule that names Secrets keeps them, and no rule keeps Events. All other resources are kept on
// demand, as the built-in policy says.
func TestSecretsAndEvents(t *testing.T) {
	oneRule := func(group, resource string, cache CacheMode) string {
		return fmt.Sprintf("resources: [{group: %q, resource: %q, cache: %s}]", group, resource, cache)
	}
	for _, tt := range []struct {
		file     string // after its head
		resource string
		want     CacheMode
	}{
		// Without a rule.
		{file: "", resource: "pods", want: CacheOnDemand},
		{file: "", resource: "secrets", want: CacheNever},
		{file: "", resource: "events", want: CacheNever},
		{file: "", resource: "events.events.k8s.io", want: CacheNever},
		{file: "", resource: "secrets.example.com", want: CacheOnDemand},
		{file: "", resource: "events.example.com", want: CacheOnDemand},

		// With the defaults or a rule for "*", which name neither.
		{file: "defaults: {cache: onDemand}", resource: "secrets", want: CacheNever},
		{file: oneRule("", "*", CacheOnDemand), resource: "secrets", want: CacheNever},
		{file: oneRule("", "*", CacheOnDemand), resource: "events", want: CacheNever},
		{file: oneRule("events.k8s.io", "*", CacheOnDemand), resource: "events.events.k8s.io", want: CacheNever},

		// With a rule of their own.
		{file: oneRule("", "secrets", CacheOnDemand), resource: "secrets", want: CacheOnDemand},
		{file: oneRule("", "events", CacheNever), resource: "events", want: CacheNever},
	} {
		gr := schema.ParseGroupResource(tt.resource)
		want := Rule{Cache: tt.want, LimitAtZero: LimitIgnored}
		if diff := cmp.Diff(want, mustParse(t, tt.file).RuleFor(gr.Group, gr.Resource)); diff != "" {
			t.Errorf("%s in %q (-want +got):\n%s", gr, tt.file, diff)
		}
	}
}

// TestSwitches: the switches decide for a resource if neither its own rule nor one that it inherits from has the setting.
func TestSwitches(t *testing.T) {
	f, err := ParseFile("p", []byte(head+`resources:
- {group: apps, resource: deployments, watches: false}
- {group: apps, resource: "*", consistentLists: always}
`))
	expect.NoError(t, err)
	c := f.Config(Switches{ConsistentLists: ConsistentLarge, Watches: true})
	for resource, want := range map[string]Rule{
		"pods":             {Cache: CacheOnDemand, LimitAtZero: LimitIgnored, ConsistentLists: ConsistentLarge, Watches: true},
		"daemonsets.apps":  {Cache: CacheOnDemand, LimitAtZero: LimitIgnored, ConsistentLists: ConsistentAll, Watches: true},
		"deployments.apps": {Cache: CacheOnDemand, LimitAtZero: LimitIgnored, ConsistentLists: ConsistentAll, Watches: false},
	} {
		gr := schema.ParseGroupResource(resource)
		expect.Same(t, want, c.RuleFor(gr.Group, gr.Resource))
	}
}

// TestWrongFile: each error names the file and the field, and says what is wrong and what to write instead.
func TestWrongFile(t *testing.T) {
	rule := func(fields string) string { return head + "resources:\n- {" + fields + "}\n" }
	pods := func(fields string) string { return rule("group: '', resource: pods, " + fields) }
	type errorWords []string // what one error must say
	for name, tt := range map[string]struct {
		text       string
		wantErrors []errorWords // in the order of the errors
	}{
		"invalid YAML":  {text: "{", wantErrors: []errorWords{{"yaml: line 1"}}},
		"a field twice": {text: head + "kind: Policy\n", wantErrors: []errorWords{{"kind"}}},
		"unknown field": {text: head + "default: {}\n", wantErrors: []errorWords{{`unknown field "default"`}}},
		"two documents": {
			text:       "# A policy.\n---\n" + head + "---\n" + head,
			wantErrors: []errorWords{{"a second document begins with ---", "one policy"}},
		},
		"two documents on Windows": {
			text:       strings.ReplaceAll(head+"---\n"+head, "\n", "\r\n"),
			wantErrors: []errorWords{{"a second document begins with ---", "one policy"}},
		},
		"an empty document before the policy": {
			text:       "---\n---\n" + head,
			wantErrors: []errorWords{{"a second document begins with ---", "one policy"}},
		},
		"nothing but comments": {
			text:       "# A policy.\n",
			wantErrors: []errorWords{{`apiVersion: Unsupported value: ""`}, {`kind: Unsupported value: ""`}},
		},
		"resources as an object": {
			text: head + "resources: {pods: {}}\n", wantErrors: []errorWords{{"cannot unmarshal object", "resources"}},
		},
		"no apiVersion and no kind": {
			text: "defaults: {cache: never}\n",
			wantErrors: []errorWords{
				{`apiVersion: Unsupported value: ""`, `listproxy.io/v1alpha1`},
				{`kind: Unsupported value: ""`, `Policy`},
			},
		},
		"a rule without group and resource": {
			text: rule("cache: never"),
			wantErrors: []errorWords{
				{`resources[0].group: Required value`, `"" for the core group`},
				{`resources[0].resource: Invalid value`, `"*"`},
			},
		},
		"core as the group": {
			text:       rule("group: core, resource: pods, cache: never"),
			wantErrors: []errorWords{{`resources[0].group: Invalid value: "core"`, `write ""`}},
		},
		"a version as the group": {
			text:       rule("group: v1, resource: pods, cache: never"),
			wantErrors: []errorWords{{`resources[0].group: Invalid value: "v1"`, `write ""`}},
		},
		"a group with its version": {
			text:       rule("group: apps/v1, resource: deployments, cache: never"),
			wantErrors: []errorWords{{`resources[0].group: Invalid value: "apps/v1"`, `without its version`}},
		},
		"a kind as the resource": {
			text:       rule("group: '', resource: Pod, cache: never"),
			wantErrors: []errorWords{{`resources[0].resource: Invalid value: "Pod"`, `not a plural name: write "pods"`}},
		},
		"the singular as the resource": {
			text:       rule("group: apps, resource: deployment, cache: never"),
			wantErrors: []errorWords{{`resources[0].resource: Invalid value: "deployment"`, `write "deployments"`}},
		},
		"the kind of a custom resource": {
			text:       rule("group: example.com, resource: Widget, cache: never"),
			wantErrors: []errorWords{{`resources[0].resource: Invalid value: "Widget"`, `lower case`}},
		},
		"unknown cache": {
			text:       pods("cache: always"),
			wantErrors: []errorWords{{`resources[0].cache: Unsupported value: "always"`, `"onDemand", "never"`}},
		},
		"unknown consistentLists": {
			text:       pods("consistentLists: sometimes"),
			wantErrors: []errorWords{{`resources[0].consistentLists: Unsupported value: "sometimes"`, `"always"`}},
		},
		"historyWindow without a unit": {
			text:       pods("historyWindow: 60"),
			wantErrors: []errorWords{{"resources[0].historyWindow: Invalid value: 60", "a duration with its unit, 2m30s"}},
		},
		"historyWindow too short": {
			text:       pods("historyWindow: 999ms"),
			wantErrors: []errorWords{{`resources[0].historyWindow: Invalid value: "999ms"`, `from 1s to 1h0m0s`}},
		},
		"Events on demand": {
			text:       rule("group: '', resource: events, cache: onDemand"),
			wantErrors: []errorWords{{"resources[0].cache: Invalid value", "events cannot be kept", "bookmarks"}},
		},
		"two rules for a resource": {
			text:       pods("cache: never") + "- {group: '', resource: pods, historyWindow: 1m}\n",
			wantErrors: []errorWords{{`resources[1]: Duplicate value: "pods"`}},
		},
		"several errors": {
			text: head + "defaults: {cache: x, historyWindow: 2}\nresources:\n" +
				"- {group: core, resource: Pod, cache: x}\n- cache: never\n",
			wantErrors: []errorWords{
				{"defaults.cache"},
				{"defaults.historyWindow"},
				{"resources[0].group"},
				{"resources[0].resource"},
				{"resources[0].cache"},
				{"resources[1].group"},
				{"resources[1].resource"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := ParseFile("p", []byte(tt.text))
			if err == nil || f != nil {
				t.Fatalf("got %+v and the error %v, want only an error", f, err)
			}
			errs := strings.Split(err.Error(), "\np: ")
			if len(errs) != len(tt.wantErrors) {
				t.Fatalf("got %d errors, want %d:\n%v", len(errs), len(tt.wantErrors), err)
			}
			for i, words := range tt.wantErrors {
				expect.Says(t, errs[i], words...)
			}
		})
	}
}

// FuzzParseFile: ParseFile returns an error that begins with the file's name, or a File. The rules of that File's Config have a
// historyWindow of 1s to 1h, or none, and never keep Events.
func FuzzParseFile(f *testing.F) {
	example, err := os.ReadFile("../docs/policy.example.yaml")
	expect.NoError(f, err)
	f.Add(example)
	for _, body := range []string{
		"", "defaults: {cache: never, historyWindow: 1h}\n",
		"resources:\n- {group: '', resource: pods, cache: eager, representations: [json]}\n", // an unknown value and field
		"resources:\n- {group: '', resource: secrets, cache: onDemand}\n" +
			"- &a {group: '', resource: '*', historyWindow: 0}\n- *a\n",
		"? [a]\n: {b: !!binary x}\n<<: 1\n---\n",
	} {
		f.Add([]byte(head + body))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := ParseFile("p", data)
		if err != nil {
			if file != nil || !strings.HasPrefix(err.Error(), "p: ") {
				t.Errorf("got the file %v and the error %q, want no file, and an error that begins with p", file, err)
			}
			return
		}
		c := file.Config(Switches{})
		for _, target := range append(
			slices.Collect(maps.Keys(c.rules)), schema.GroupResource{Resource: "events"},
			schema.GroupResource{Group: "events.k8s.io", Resource: "events"}, schema.GroupResource{Group: "x", Resource: "z"},
		) {
			rule := c.RuleFor(target.Group, target.Resource)
			if isEvents(target.Group, target.Resource) && rule.Cache != CacheNever {
				t.Errorf("%s: got the rule %+v, want Events never kept", target, rule)
			}
			isInBounds := rule.HistoryWindow >= time.Second && rule.HistoryWindow <= time.Hour
			isValidWindow := rule.HistoryWindow == 0 || isInBounds
			isValidCache := rule.Cache == CacheNever || rule.Cache == CacheOnDemand
			if !isValidWindow || !isValidCache {
				t.Errorf("%s: got the rule %+v, want a cache mode, and no historyWindow or one from 1s to 1h", target, rule)
			}
		}
	})
}

// TestEvaluateForwarded: Evaluate keeps Parse's reason to forward. But if watches are not answered from memory, the reason for
// every watch is Watch.
func TestEvaluateForwarded(t *testing.T) {
	const table = "Accept: application/json;as=Table;g=meta.k8s.io;v=v1\r\n"
	for _, tt := range []struct {
		target  string
		watches bool // the switch
		want    reason.Reason
	}{
		{target: "/api/v1/pods", watches: false, want: reason.Representation},
		{target: "/api/v1/pods", watches: true, want: reason.Representation},
		{target: "/api/v1/pods?watch=true", watches: false, want: reason.Watch},
		{target: "/api/v1/pods?watch=true", watches: true, want: reason.Representation},
	} {
		request, why := parse(read(t, get(tt.target, alice, table)))
		got := new(File).Config(Switches{Watches: tt.watches}).Evaluate(request, why)
		if got.Reason != tt.want {
			t.Errorf("%s, watches %t: got %+v, want reason %s", tt.target, tt.watches, got.Decision, tt.want)
		}
	}
}
