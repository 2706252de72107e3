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

func TestDefaultConfig(t *testing.T) {
	everything := Rule{Cache: CacheOnDemand, LimitAtZero: LimitIgnored, Source: BuiltIn}
	never := everything
	never.Cache = CacheNever
	c := DefaultConfig()
	for _, test := range []struct {
		group, resource string
		want            Rule
	}{
		{"", "pods", everything},
		{"", "secrets", never},
		{"", "events", never},
		{"events.k8s.io", "events", never},
		{"apps", "deployments", everything},
		{"example.com", "secrets", everything},
		{"example.com", "events", everything},
		{"events.k8s.io", "secrets", everything},
	} {
		if diff := cmp.Diff(test.want, c.For(test.group, test.resource)); diff != "" {
			t.Errorf("%s in %q (-want +got):\n%s", test.resource, test.group, diff)
		}
	}
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
	for name, text := range map[string]string{
		"yaml": "# A policy.\n---\n" + head + `resources:
- group: example.com
  resource: things
  cache: onDemand
  historyWindow: 60s
  limitAtZero: honour
  consistentLists: always
  watches: true
---
`,
		"json": `{"apiVersion": "listproxy.io/v1alpha1", "kind": "Policy", "resources": [
	{"group": "example.com", "resource": "things", "cache": "onDemand", "historyWindow": "1m", "limitAtZero": "honour",
	"consistentLists": "always", "watches": true}]}
`,
	} {
		t.Run(name, func(t *testing.T) {
			c, err := ParseConfig("p", []byte(text))
			expect.NoError(t, err)
			expect.Same(t, want, c.For("example.com", "things"))
		})
	}
	for text, want := range map[string]ConsistentLists{"true": ConsistentOn, "false": ConsistentNever, "always": ConsistentAlways} {
		if got := parsed(t, "defaults: {consistentLists: "+text+"}\n").Defaults().ConsistentLists; got != want {
			t.Errorf("consistentLists: %s is %q", text, got)
		}
	}
}

// TestInheritance: field by field, from the most specific rule to the built-in policy.
func TestInheritance(t *testing.T) {
	// The order in the file has no meaning.
	c := parsed(t, `resources:
- {group: apps, resource: deployments, historyWindow: 3s}
- {group: apps, resource: "*", historyWindow: 2s, watches: false}
- {group: "", resource: "*", cache: never}
- {group: "", resource: pods, cache: onDemand}
- {group: "", resource: secrets, historyWindow: 4s}
defaults:
  historyWindow: 1s
  limitAtZero: honour
  watches: true
`)
	rule := func(cache CacheMode, history time.Duration, watches bool, source string) Rule {
		return Rule{Cache: cache, HistoryWindow: history, LimitAtZero: LimitHonoured, Watches: &watches, Source: source}
	}
	for _, test := range []struct {
		group, resource string
		want            Rule
	}{
		{"apps", "deployments", rule(CacheOnDemand, 3*time.Second, false, "p: resources[0]")},
		{"apps", "daemonsets", rule(CacheOnDemand, 2*time.Second, false, "p: resources[1]")},
		{"batch", "jobs", rule(CacheOnDemand, time.Second, true, "p: defaults")},
		{"", "nodes", rule(CacheNever, time.Second, true, "p: resources[2]")},
		{"", "pods", rule(CacheOnDemand, time.Second, true, "p: resources[3]")},
		{"", "secrets", rule(CacheNever, 4*time.Second, true, "p: resources[4]")},
		{"", "events", rule(CacheNever, time.Second, true, "p: resources[2]")},
		{"events.k8s.io", "events", rule(CacheNever, time.Second, true, BuiltIn)},
	} {
		if diff := cmp.Diff(test.want, c.For(test.group, test.resource)); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", test.group, test.resource, diff)
		}
	}
	expect.Same(t, "deployments.apps", c.Targets()[0].String())
}

// TestSecretsAndEvents: nothing but a rule that names Secrets turns them on; nothing does Events.
func TestSecretsAndEvents(t *testing.T) {
	for _, test := range []struct {
		body            string
		group, resource string
		want            CacheMode
		source          string
	}{
		{"defaults: {cache: onDemand}", "", "secrets", CacheNever, BuiltIn},
		{"defaults: {cache: onDemand}", "", "events", CacheNever, BuiltIn},
		{"resources: [{group: '', resource: '*', cache: onDemand}]", "", "secrets", CacheNever, BuiltIn},
		{"resources: [{group: '', resource: '*', cache: onDemand}]", "", "events", CacheNever, BuiltIn},
		{"resources: [{group: events.k8s.io, resource: '*', cache: onDemand}]", "events.k8s.io", "events", CacheNever, BuiltIn},
		{"resources: [{group: '', resource: secrets, historyWindow: 5s}]", "", "secrets", CacheNever, "p: resources[0]"},
		{"resources: [{group: '', resource: secrets, cache: onDemand}]", "", "secrets", CacheOnDemand, "p: resources[0]"},
		{"resources: [{group: '', resource: events, cache: never}]", "", "events", CacheNever, "p: resources[0]"},
		{"resources: [{group: '', resource: events, historyWindow: 5s}]", "", "events", CacheNever, "p: resources[0]"},
	} {
		t.Run(test.body, func(t *testing.T) {
			rule := parsed(t, test.body).For(test.group, test.resource)
			if rule.Cache != test.want || rule.Source != test.source {
				t.Errorf("%s is %s (%s), not %s (%s)", test.resource, rule.Cache, rule.Source, test.want, test.source)
			}
		})
	}
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
		"comments only":         {"# nothing\n", []string{"the file is empty|kind: Policy"}},
		"neither":               {"{", []string{"yaml: line 1"}},
		"a word":                {"policy\n", []string{"|cannot unmarshal string"}},
		"two documents":         {head + "---\n" + head, []string{"a second document begins with ---|one policy"}},
		"a field twice":         {head + "kind: Policy\n", []string{"|kind"}},
		"no head":               {"defaults: {cache: never}\n", []string{`apiVersion: Unsupported value: ""|listproxy.io/v1alpha1`, `kind: Unsupported value: ""|Policy`}},
		"another version":       {"apiVersion: listproxy.io/v2\nkind: Policy\n", []string{`apiVersion: Unsupported value: "listproxy.io/v2"|"listproxy.io/v1alpha1"`}},
		"another kind":          {"apiVersion: listproxy.io/v1alpha1\nkind: Pod\n", []string{`kind: Unsupported value: "Pod"|"Policy"`}},
		"unknown field":         {head + "default: {}\n", []string{`unknown field "default"`}},
		"field in another case": {head + "Defaults: {}\n", []string{`unknown field "Defaults"`}},
		"resources by name":     {head + "resources: {pods: {}}\n", []string{"|cannot unmarshal object|resources"}},
		"nothing required":      {head + "resources:\n- cache: never\n", []string{`resources[0].group: Required value|"" for the core group`, `resources[0].resource: Invalid value|"*"`}},
		"the core group":        {head + "resources: [{group: core, resource: pods, cache: never}]\n", []string{`resources[0].group: Invalid value: "core"|write ""`}},
		"a version for a group": {head + "resources: [{group: v1, resource: pods, cache: never}]\n", []string{`resources[0].group: Invalid value: "v1"|write ""`}},
		"group with version":    {head + "resources: [{group: apps/v1, resource: deployments, cache: never}]\n", []string{`resources[0].group: Invalid value: "apps/v1"|without its version`}},
		"group is null":         {head + "resources: [{group: , resource: pods, cache: never}]\n", []string{"resources[0].group: Required value"}},
		"a subresource":         {head + "resources: [{group: '', resource: pods/status, cache: never}]\n", []string{`resources[0].resource: Invalid value: "pods/status"|plural`}},
		"a kind":                {head + "resources: [{group: '', resource: Pod, cache: never}]\n", []string{`resources[0].resource: Invalid value: "Pod"|lower case`}},
		"unknown cache":         {rule("cache: always"), []string{`resources[0].cache: Unsupported value: "always"|"onDemand", "never"`}},
		"unknown limit":         {rule("limitAtZero: honor"), []string{`resources[0].limitAtZero: Unsupported value: "honor"|"honour"`}},
		"unknown lists":         {rule("consistentLists: sometimes"), []string{`resources[0].consistentLists: Unsupported value: "sometimes"|"always"`}},
		"window without unit":   {rule("historyWindow: 60"), []string{"resources[0].historyWindow: Invalid value: 60|a duration with its unit, 2m30s"}},
		"window too short":      {rule("historyWindow: 999ms"), []string{`resources[0].historyWindow: Invalid value: "999ms"|from 1s to 1h0m0s`}},
		"window too long":       {rule("historyWindow: 61m"), []string{`resources[0].historyWindow: Invalid value: "61m"`}},
		"truth in words":        {rule("watches: yess"), []string{"|cannot unmarshal string|watches"}},
		"events":                {head + "resources: [{group: '', resource: events, cache: onDemand}]\n", []string{"resources[0].cache: Invalid value|events cannot be kept|bookmarks"}},
		"two rules":             {head + "resources:\n- {group: '', resource: pods, cache: never}\n- {group: '', resource: pods, historyWindow: 1m}\n", []string{`resources[1]: Duplicate value: "pods"`}},
		"all at once": {head + "defaults: {cache: x, historyWindow: 2}\nresources:\n- {group: core, resource: Pod, cache: x}\n- cache: never\n", []string{
			"defaults.cache", "defaults.historyWindow", "resources[0].group", "resources[0].resource", "resources[0].cache", "resources[1].group", "resources[1].resource",
		}},

		// What earlier versions had.
		"eager":               {rule("cache: eager"), []string{`resources[0].cache: Invalid value: "eager"|--eager|write onDemand`}},
		"eager defaults":      {head + "defaults: {cache: eager}\n", []string{`defaults.cache: Invalid value: "eager"|--eager`}},
		"a version":           {rule("version: v1"), []string{"resources[0].version is no longer there|leave it out"}},
		"representations":     {rule("representations: [json]"), []string{"resources[0].representations is no longer there"}},
		"bytes":               {head + "defaults: {maxBytes: 1Gi}\n", []string{"defaults.maxBytes is no longer there|--cache-bytes"}},
		"an idle time":        {rule("idleTimeout: 0"), []string{"resources[0].idleTimeout is no longer there|--eager"}},
		"the same for all":    {rule("sameForEveryone: true"), []string{"resources[0].sameForEveryone is no longer there|always forwarded"}},
		"any for the newest":  {rule("newestAsAny: [{user: a}]"), []string{"resources[0].newestAsAny is no longer there|resourceVersion=0|consistentLists"}},
		"several of them":     {rule("version: v1, maxBytes: 0"), []string{"resources[0].maxBytes is", "resources[0].version is"}},
		"an unknown one, too": {rule("version: v1, versions: []"), []string{"resources[0].version is", `unknown field "resources[0].versions"`}},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := ParseConfig("p", []byte(test.text))
			if err == nil {
				t.Fatalf("accepted as %+v", c)
			}
			if c != nil {
				t.Error("a config beside the error")
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

func TestForDoesNotAllocate(t *testing.T) {
	c := parsed(t, "resources: [{group: '', resource: pods, watches: true}]")
	if n := testing.AllocsPerRun(100, func() {
		c.For("", "pods")
		c.For("", "secrets")
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
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
