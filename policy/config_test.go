package policy

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/expect"
)

const head = "apiVersion: listproxy.io/v1alpha1\nkind: Policy\n"

// parsed is the Config of a file after its head.
func parsed(t testing.TB, body string) *Config {
	t.Helper()
	c, err := ParseConfig("p", []byte(head+body))
	expect.NoError(t, err)
	return c
}

// TestEveryField: each is read, in YAML and in JSON, after comments and the mark of a document.
func TestEveryField(t *testing.T) {
	want := Rule{
		Cache:           CacheOnDemand,
		HistoryWindow:   time.Minute,
		LimitAtZero:     LimitHonoured,
		ConsistentLists: ConsistentAlways,
		Watches:         new(true),
		Source:          "p: resources[0]",
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
`,
		`{"apiVersion": "listproxy.io/v1alpha1", "kind": "Policy", "resources": [
	{"group": "example.com", "resource": "things", "cache": "onDemand", "historyWindow": "1m", "limitAtZero": "honour",
	"consistentLists": "always", "watches": true}]}
`,
	} {
		c, err := ParseConfig("p", []byte(text))
		expect.NoError(t, err)
		expect.Same(t, want, c.For("example.com", "things"))
	}
	for text, want := range map[string]ConsistentLists{"true": ConsistentOn, "false": ConsistentNever, "always": ConsistentAlways} {
		if got := parsed(t, "defaults: {consistentLists: "+text+"}\n").Defaults().ConsistentLists; got != want {
			t.Errorf("consistentLists: %s is %q", text, got)
		}
	}
}

// TestFor: a rule is put together field by field, from the most specific one to the built-in policy, wherever they
// stand in the file. Nothing but a rule that names Secrets turns them on; nothing does Events.
func TestFor(t *testing.T) {
	const rules = `resources:
- {group: apps, resource: deployments, historyWindow: 3s}
- {group: apps, resource: "*", historyWindow: 2s, watches: false}
- {group: "", resource: "*", cache: never}
- {group: "", resource: pods, cache: onDemand}
- {group: "", resource: secrets, historyWindow: 4s}
defaults: {historyWindow: 1s, limitAtZero: honour, watches: true}
`
	said := func(cache CacheMode, history time.Duration, watches bool, source string) Rule {
		return Rule{Cache: cache, HistoryWindow: history, LimitAtZero: LimitHonoured, Watches: &watches, Source: source}
	}
	builtIn := func(cache CacheMode, source string) Rule {
		return Rule{Cache: cache, LimitAtZero: LimitIgnored, Source: source}
	}
	for _, test := range []struct {
		body, resource string
		want           Rule
	}{
		{"", "pods", builtIn(CacheOnDemand, BuiltIn)},
		{"", "secrets", builtIn(CacheNever, BuiltIn)},
		{"", "events", builtIn(CacheNever, BuiltIn)},
		{"", "events.events.k8s.io", builtIn(CacheNever, BuiltIn)},
		{"", "secrets.example.com", builtIn(CacheOnDemand, BuiltIn)},
		{"", "events.example.com", builtIn(CacheOnDemand, BuiltIn)},

		{rules, "deployments.apps", said(CacheOnDemand, 3*time.Second, false, "p: resources[0]")},
		{rules, "daemonsets.apps", said(CacheOnDemand, 2*time.Second, false, "p: resources[1]")},
		{rules, "jobs.batch", said(CacheOnDemand, time.Second, true, "p: defaults")},
		{rules, "nodes", said(CacheNever, time.Second, true, "p: resources[2]")},
		{rules, "pods", said(CacheOnDemand, time.Second, true, "p: resources[3]")},
		{rules, "secrets", said(CacheNever, 4*time.Second, true, "p: resources[4]")},
		{rules, "events", said(CacheNever, time.Second, true, "p: resources[2]")},
		{rules, "events.events.k8s.io", said(CacheNever, time.Second, true, BuiltIn)},

		{"defaults: {cache: onDemand}", "secrets", builtIn(CacheNever, BuiltIn)},
		{"resources: [{group: '', resource: '*', cache: onDemand}]", "secrets", builtIn(CacheNever, BuiltIn)},
		{"resources: [{group: '', resource: '*', cache: onDemand}]", "events", builtIn(CacheNever, BuiltIn)},
		{"resources: [{group: events.k8s.io, resource: '*', cache: onDemand}]", "events.events.k8s.io", builtIn(CacheNever, BuiltIn)},
		{"resources: [{group: '', resource: secrets, cache: onDemand}]", "secrets", builtIn(CacheOnDemand, "p: resources[0]")},
		{"resources: [{group: '', resource: events, cache: never}]", "events", builtIn(CacheNever, "p: resources[0]")},
	} {
		gr := schema.ParseGroupResource(test.resource)
		if diff := cmp.Diff(test.want, parsed(t, test.body).For(gr.Group, gr.Resource)); diff != "" {
			t.Errorf("%s after %q (-want +got):\n%s", gr, test.body, diff)
		}
	}
	if diff := cmp.Diff(DefaultConfig().Defaults(), parsed(t, "").Defaults()); diff != "" {
		t.Errorf("without a file (-want +got):\n%s", diff)
	}
	expect.Same(t, "deployments.apps", parsed(t, rules).Targets()[0].String())
}

// TestWrongConfig: each error names the file and the field, and says what is wrong and what to write
// instead.
func TestWrongConfig(t *testing.T) {
	rule := func(fields string) string {
		return head + "resources:\n- {group: '', resource: pods, " + fields + "}\n"
	}
	for name, test := range map[string]struct {
		text string
		want []string // what each error begins with, and says
	}{
		"empty":                 {"", []string{"the file is empty|apiVersion: listproxy.io/v1alpha1"}},
		"neither":               {"{", []string{"yaml: line 1"}},
		"two documents":         {head + "---\n" + head, []string{"a second document begins with ---|one policy"}},
		"a field twice":         {head + "kind: Policy\n", []string{"|kind"}},
		"no head":               {"defaults: {cache: never}\n", []string{`apiVersion: Unsupported value: ""|listproxy.io/v1alpha1`, `kind: Unsupported value: ""|Policy`}},
		"unknown field":         {head + "default: {}\n", []string{`unknown field "default"`}},
		"resources by name":     {head + "resources: {pods: {}}\n", []string{"|cannot unmarshal object|resources"}},
		"nothing required":      {head + "resources:\n- cache: never\n", []string{`resources[0].group: Required value|"" for the core group`, `resources[0].resource: Invalid value|"*"`}},
		"the core group":        {head + "resources: [{group: core, resource: pods, cache: never}]\n", []string{`resources[0].group: Invalid value: "core"|write ""`}},
		"a version for a group": {head + "resources: [{group: v1, resource: pods, cache: never}]\n", []string{`resources[0].group: Invalid value: "v1"|write ""`}},
		"group with version":    {head + "resources: [{group: apps/v1, resource: deployments, cache: never}]\n", []string{`resources[0].group: Invalid value: "apps/v1"|without its version`}},
		"a kind":                {head + "resources: [{group: '', resource: Pod, cache: never}]\n", []string{`resources[0].resource: Invalid value: "Pod"|lower case`}},
		"unknown cache":         {rule("cache: always"), []string{`resources[0].cache: Unsupported value: "always"|"onDemand", "never"`}},
		"unknown lists":         {rule("consistentLists: sometimes"), []string{`resources[0].consistentLists: Unsupported value: "sometimes"|"always"`}},
		"window without unit":   {rule("historyWindow: 60"), []string{"resources[0].historyWindow: Invalid value: 60|a duration with its unit, 2m30s"}},
		"window too short":      {rule("historyWindow: 999ms"), []string{`resources[0].historyWindow: Invalid value: "999ms"|from 1s to 1h0m0s`}},
		"events":                {head + "resources: [{group: '', resource: events, cache: onDemand}]\n", []string{"resources[0].cache: Invalid value|events cannot be kept|bookmarks"}},
		"two rules":             {head + "resources:\n- {group: '', resource: pods, cache: never}\n- {group: '', resource: pods, historyWindow: 1m}\n", []string{`resources[1]: Duplicate value: "pods"`}},
		"all at once": {head + "defaults: {cache: x, historyWindow: 2}\nresources:\n- {group: core, resource: Pod, cache: x}\n- cache: never\n", []string{
			"defaults.cache", "defaults.historyWindow", "resources[0].group", "resources[0].resource", "resources[0].cache", "resources[1].group", "resources[1].resource",
		}},

		// What earlier versions had.
		"eager":               {rule("cache: eager"), []string{`resources[0].cache: Invalid value: "eager"|--eager|write onDemand`}},
		"a version":           {rule("version: v1"), []string{"resources[0].version is no longer there|leave it out"}},
		"bytes":               {head + "defaults: {maxBytes: 1Gi}\n", []string{"defaults.maxBytes is no longer there|--cache-bytes"}},
		"an unknown one, too": {rule("version: v1, versions: []"), []string{"resources[0].version is", `unknown field "resources[0].versions"`}},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := ParseConfig("p", []byte(test.text))
			if err == nil || c != nil {
				t.Fatalf("read as %+v, %v", c, err)
			}
			lines := strings.Split(err.Error(), "\np: ")
			if len(lines) != len(test.want) {
				t.Fatalf("%d errors, not %d:\n%v", len(lines), len(test.want), err)
			}
			for i, want := range test.want {
				words, line := strings.Split(want, "|"), strings.TrimPrefix(lines[i], "p: ")
				if !strings.HasPrefix(line, words[0]) {
					t.Errorf("%q does not begin with %q", line, words[0])
				}
				expect.Says(t, line, words[1:]...)
			}
		})
	}
}

// FuzzParseConfig: a policy file is refused with its name in the error, or gives every resource a rule within bounds,
// in which events are never kept.
func FuzzParseConfig(f *testing.F) {
	example, err := os.ReadFile("../docs/policy.example.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(example)
	for _, body := range []string{
		"", "defaults: {cache: never, historyWindow: 1h}\n",
		"resources:\n- {group: '', resource: pods, cache: eager, representations: [json]}\n",
		"resources:\n- {group: '', resource: secrets, cache: onDemand}\n- &a {group: '', resource: '*', historyWindow: 0}\n- *a\n",
		"? [a]\n: {b: !!binary x}\n<<: 1\n---\n",
	} {
		f.Add([]byte(head + body))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseConfig("p", data)
		if err != nil {
			if c != nil || !strings.HasPrefix(err.Error(), "p: ") {
				t.Errorf("a config %v, or an error without its file: %q", c, err)
			}
			return
		}
		for _, target := range append(c.Targets(), schema.GroupResource{Resource: "events"}, schema.GroupResource{Group: "events.k8s.io", Resource: "events"},
			schema.GroupResource{Group: "x", Resource: "z"}) {
			rule := c.For(target.Group, target.Resource)
			if isEvents(target.Group, target.Resource) && rule.Cache != CacheNever {
				t.Errorf("%s are kept", target)
			}
			if rule.Source == "" || rule.HistoryWindow != 0 && (rule.HistoryWindow < time.Second || rule.HistoryWindow > time.Hour) ||
				rule.Cache != CacheNever && rule.Cache != CacheOnDemand {
				t.Errorf("%s: %+v", target, rule)
			}
		}
	})
}

// TestOutlineOfWhatIsForwarded: Parse's reason stands, except that a watch is forwarded as one where
// watches are not answered.
func TestOutlineOfWhatIsForwarded(t *testing.T) {
	const table = "Accept: application/json;as=Table;g=meta.k8s.io;v=v1\r\n"
	for target, want := range map[string][2]reason.Reason{ // without the switch, and with it
		"/api/v1/pods":            {reason.Representation, reason.Representation},
		"/api/v1/pods?watch=true": {reason.Watch, reason.Representation},
	} {
		list, why := parse(read(t, get(target, alice, table)))
		for i, on := range []bool{false, true} {
			o := DefaultConfig().With(Switches{Watches: on}).Evaluate(list, why)
			if o.Reason != want[i] || o.Serve {
				t.Errorf("%s, watches answered: %t: %+v, want %s", target, on, o.Decision, want[i])
			}
		}
	}
}
