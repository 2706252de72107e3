package policy

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/test/expect"
)

const head = "apiVersion: listproxy.io/v1alpha1\nkind: Policy\n"

// parsed is the Config of a file after its head, whose first line is line 3.
func parsed(t testing.TB, body string) *Config {
	t.Helper()
	c, err := ParseConfig("p", []byte(head+body))
	expect.NoError(t, err)
	return c
}

func TestDefaultConfig(t *testing.T) {
	everything := Rule{Cache: CacheOnDemand, Representations: media.All(), LimitAtZero: LimitIgnored, Source: BuiltIn}
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
		if diff := cmp.Diff(test.want, c.For(test.group, "v1", test.resource)); diff != "" {
			t.Errorf("%s in %q (-want +got):\n%s", test.resource, test.group, diff)
		}
	}
	if eager := c.Eager(); len(eager) > 0 {
		t.Errorf("eager: %v", eager)
	}
}

// TestEveryField: each is read, in YAML and in JSON.
func TestEveryField(t *testing.T) {
	want := Rule{
		Cache:           CacheEager,
		Representations: []media.Representation{media.Protobuf, media.JSON},
		HistoryWindow:   time.Minute,
		MaxBytes:        512 << 20,
		IdleTimeout:     new(10 * time.Minute),
		LimitAtZero:     LimitHonoured,
		SameForEveryone: true,
		Source:          "p:4",
	}
	for name, body := range map[string]string{
		"yaml": `resources:
- group: example.com
  resource: things
  version: v1beta1
  cache: eager
  representations: [protobuf, json]
  historyWindow: 60s
  maxBytes: 512Mi
  idleTimeout: 10m
  limitAtZero: honour
  sameForEveryone: true
`,
		"flow": `resources: [
	{"group": "example.com", "resource": "things", "version": "v1beta1", "cache": "eager", "sameForEveryone": true,
	"representations": ["protobuf", "json"], "historyWindow": "60s", "maxBytes": 536870912, "idleTimeout": "10m", "limitAtZero": "honour"}]
`,
	} {
		t.Run(name, func(t *testing.T) {
			c := parsed(t, body)
			if diff := cmp.Diff(want, c.For("example.com", "v1beta1", "things")); diff != "" {
				t.Errorf("rule (-want +got):\n%s", diff)
			}
			eager := []EagerCollection{
				{"example.com", "v1beta1", "things", media.Protobuf},
				{"example.com", "v1beta1", "things", media.JSON},
			}
			if diff := cmp.Diff(eager, c.Eager()); diff != "" {
				t.Errorf("eager (-want +got):\n%s", diff)
			}
		})
	}
}

func TestJSONFile(t *testing.T) {
	c, err := ParseConfig("p.json", []byte("{\n\t\"apiVersion\": \"listproxy.io/v1alpha1\",\n\t\"kind\": \"Policy\",\n\t\"defaults\": {\"cache\": \"never\"}\n}\n"))
	expect.NoError(t, err)
	if rule := c.For("", "v1", "pods"); rule.Cache != CacheNever || rule.Source != "p.json:4" {
		t.Errorf("got %+v", rule)
	}
}

// TestInheritance: field by field, from the most specific rule to the built-in policy.
func TestInheritance(t *testing.T) {
	// The order in the file has no meaning.
	c := parsed(t, `resources:
- {group: apps, resource: deployments, version: v1, cache: eager}
- {group: apps, resource: deployments, historyWindow: 3s, idleTimeout: 0}
- {group: apps, resource: "*", historyWindow: 2s, maxBytes: 2Mi}
- {group: "", resource: "*", cache: never}
- {group: "", resource: pods, cache: onDemand}
- {group: "", resource: secrets, maxBytes: 0}
defaults:
  historyWindow: 1s
  maxBytes: 1Mi
  idleTimeout: 1h
  representations: [json]
  limitAtZero: honour
`)
	rule := func(cache CacheMode, history time.Duration, mebibytes int64, idle time.Duration, source string) Rule {
		return Rule{
			Cache: cache, HistoryWindow: history, MaxBytes: mebibytes << 20, IdleTimeout: &idle,
			Representations: []media.Representation{media.JSON}, LimitAtZero: LimitHonoured, Source: source,
		}
	}
	for _, test := range []struct {
		group, version, resource string
		want                     Rule
	}{
		{"apps", "v1", "deployments", rule(CacheEager, 3*time.Second, 2, 0, "p:4")},
		{"apps", "v1beta1", "deployments", rule(CacheOnDemand, 3*time.Second, 2, 0, "p:5")},
		{"apps", "v1", "daemonsets", rule(CacheOnDemand, 2*time.Second, 2, time.Hour, "p:6")},
		{"batch", "v1", "jobs", rule(CacheOnDemand, time.Second, 1, time.Hour, "p:11")},
		{"", "v1", "nodes", rule(CacheNever, time.Second, 1, time.Hour, "p:7")},
		{"", "v1", "pods", rule(CacheOnDemand, time.Second, 1, time.Hour, "p:8")},
		{"", "v1", "secrets", rule(CacheNever, time.Second, 0, time.Hour, "p:9")},
		{"", "v1", "events", rule(CacheNever, time.Second, 1, time.Hour, "p:7")},
		{"events.k8s.io", "v1", "events", rule(CacheNever, time.Second, 1, time.Hour, BuiltIn)},
	} {
		if diff := cmp.Diff(test.want, c.For(test.group, test.version, test.resource)); diff != "" {
			t.Errorf("%s %s %s (-want +got):\n%s", test.group, test.version, test.resource, diff)
		}
	}
	if diff := cmp.Diff([]EagerCollection{{"apps", "v1", "deployments", media.JSON}}, c.Eager()); diff != "" {
		t.Errorf("eager (-want +got):\n%s", diff)
	}
	if got := c.RuleTargets()[0].String(); got != "deployments.v1.apps" {
		t.Errorf("the first target is %s", got)
	}
	if c.Defaults().Source != "p:11" {
		t.Errorf("the defaults are from %s", c.Defaults().Source)
	}
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
		{"resources: [{group: '', resource: secrets, historyWindow: 5s}]", "", "secrets", CacheNever, "p:3"},
		{"resources: [{group: '', resource: secrets, cache: onDemand}]", "", "secrets", CacheOnDemand, "p:3"},
		{"resources: [{group: '', resource: secrets, version: v1, cache: eager}]", "", "secrets", CacheEager, "p:3"},
		{"resources: [{group: '', resource: events, cache: never}]", "", "events", CacheNever, "p:3"},
		{"resources: [{group: '', resource: events, historyWindow: 5s}]", "", "events", CacheNever, "p:3"},
	} {
		t.Run(test.body, func(t *testing.T) {
			rule := parsed(t, test.body).For(test.group, "v1", test.resource)
			if rule.Cache != test.want || rule.Source != test.source {
				t.Errorf("%s is %s (%s), not %s (%s)", test.resource, rule.Cache, rule.Source, test.want, test.source)
			}
			for _, representation := range media.All() {
				if rule.Keeps(representation) != (test.want != CacheNever) {
					t.Errorf("keeps %s: %t", representation, rule.Keeps(representation))
				}
			}
		})
	}
}

// TestWrongConfig: each error says where, what, and what to write instead.
func TestWrongConfig(t *testing.T) {
	rule := func(fields string) string {
		return head + "resources:\n- {group: '', resource: pods, " + fields + "}\n"
	}
	for name, test := range map[string]struct {
		text string
		want []string // what each error begins with, and says
	}{
		"empty":                  {"", []string{"p:1: the file is empty|apiVersion: listproxy.io/v1alpha1"}},
		"comments only":          {"# nothing\n", []string{"p:1: the file is empty|kind: Policy"}},
		"null":                   {"null\n", []string{"p:1: this is empty|apiVersion"}},
		"a list":                 {"- a\n", []string{"p:1: this is a list: write fields here|apiVersion, kind, defaults, resources"}},
		"text":                   {"hello\n", []string{`p:1: this is "hello"`}},
		"not YAML":               {"a: 1\n b: [\n", []string{"p:2: this is neither YAML nor JSON"}},
		"not UTF-8":              {head + "defaults: {cache: \"\xff\"}\n", []string{"p:1: this is neither YAML nor JSON|UTF-8"}},
		"too large":              {head + strings.Repeat("#", 1<<20), []string{"p:1: the file has 1048"}},
		"two documents":          {head + "---\n" + head, []string{"p:3: a second document"}},
		"a broken second":        {head + "---\na: [\n", []string{"p:4: this is neither YAML nor JSON"}},
		"an anchor":              {head + "defaults: &d {cache: never}\n", []string{"p:3: &d: anchors are not read"}},
		"an alias":               {head + "defaults: &d {cache: never}\nresources: *d\n", []string{"p:3: &d", "p:4: *d: aliases are not read"}},
		"a merge key":            {head + "defaults:\n  <<: {cache: never}\n", []string{"p:4: <<: merge keys are not read"}},
		"a tag":                  {head + "defaults: !x {cache: never}\n", []string{"p:3: !x: tags are not read"}},
		"deep":                   {head + "defaults: " + strings.Repeat("[", 40) + strings.Repeat("]", 40) + "\n", []string{"p:3: this is nested too deeply"}},
		"no head":                {"defaults: {cache: never}\n", []string{"p:1: apiVersion: is missing|apiVersion: listproxy.io/v1alpha1", "p:1: kind: is missing|kind: Policy"}},
		"another version":        {"apiVersion: listproxy.io/v2\nkind: Policy\nnew: x\n", []string{`p:1: apiVersion: "listproxy.io/v2" is not known: write listproxy.io/v1alpha1`}},
		"another kind":           {"apiVersion: listproxy.io/v1alpha1\nkind: Pod\nspec: {}\n", []string{`p:2: kind: "Pod" is not known: write Policy`}},
		"version is a number":    {"apiVersion: 1\nkind: Policy\n", []string{"p:1: apiVersion: this is the number 1"}},
		"unknown field":          {head + "default: {}\n", []string{`p:3: unknown field "default"|apiVersion, kind, defaults, resources`}},
		"field in another case":  {head + "Defaults: {}\n", []string{`p:3: unknown field "Defaults"`}},
		"a key that is no text":  {head + "? [a]\n: b\n", []string{"p:3: unknown field a list"}},
		"a field twice":          {head + "kind: Policy\n", []string{"p:3: kind: is given a second time, after line 2"}},
		"empty defaults":         {head + "defaults:\n", []string{"p:3: defaults: this is empty: write fields here"}},
		"eager defaults":         {head + "defaults: {cache: eager}\n", []string{"p:3: defaults.cache: only a rule with a resource and a version|onDemand or never"}},
		"vouched defaults":       {head + "defaults: {sameForEveryone: true}\n", []string{`p:3: defaults: unknown field "sameForEveryone"`}},
		"empty resources":        {head + "resources:\n", []string{"p:3: resources: this is empty: write a list here"}},
		"resources by name":      {head + "resources: {pods: {}}\n", []string{"p:3: resources: this is a mapping: write a list here"}},
		"a rule that is a word":  {head + "resources: [pods]\n", []string{`p:3: resources[0]: this is "pods": write fields here (group, version, resource`}},
		"nothing required":       {head + "resources:\n- cache: never\n", []string{`p:4: resources[0].group: is missing|"" for the core group`, `p:4: resources[0].resource: is missing|"*"`}},
		"says nothing":           {head + "resources:\n- group: apps\n  resource: deployments\n", []string{"p:4: resources[0]: the rule for deployments.apps says nothing"}},
		"the core group":         {head + "resources: [{group: core, resource: pods, cache: never}]\n", []string{`p:3: resources[0].group: the core group has an empty name: write ""`}},
		"group with version":     {head + "resources: [{group: apps/v1, resource: deployments, cache: never}]\n", []string{`p:3: resources[0].group: "apps/v1" is no API group|without the version`}},
		"group is null":          {head + "resources: [{group: , resource: pods, cache: never}]\n", []string{"p:3: resources[0].group: this is empty: write text"}},
		"a subresource":          {head + "resources: [{group: '', resource: pods/status, cache: never}]\n", []string{`p:3: resources[0].resource: "pods/status" is no such name|plural`}},
		"a kind":                 {head + "resources: [{group: '', resource: Pod, cache: never}]\n", []string{`p:3: resources[0].resource: "Pod" is no such name|lower case`}},
		"empty version":          {rule("version: '', cache: never"), []string{`p:4: resources[0].version: "" is no such name|leave it out for all versions`}},
		"version of a group":     {head + "resources: [{group: apps, version: v1, resource: '*', cache: never}]\n", []string{"p:3: resources[0].version: a rule for all resources of a group is for all versions"}},
		"eager group":            {head + "resources: [{group: apps, resource: '*', cache: eager}]\n", []string{"p:3: resources[0].cache: only a rule with a resource and a version can be eager"}},
		"eager in all versions":  {rule("cache: eager"), []string{"p:4: resources[0].cache: what is eager|add version: v1"}},
		"vouched group":          {head + "resources: [{group: apps, resource: '*', sameForEveryone: true}]\n", []string{"p:3: resources[0].sameForEveryone: can be vouched for one resource only"}},
		"unknown cache":          {rule("cache: always"), []string{`p:4: resources[0].cache: "always" is not known: choose eager, onDemand, never`}},
		"unknown limit":          {rule("limitAtZero: honor"), []string{`p:4: resources[0].limitAtZero: "honor" is not known: choose ignore, honour`}},
		"unknown representation": {rule("representations: [yaml]"), []string{`p:4: resources[0].representations[0]: "yaml" is not known: choose json, protobuf, metadata-json, metadata-protobuf`}},
		"the same twice":         {rule("representations: [json, json]"), []string{`p:4: resources[0].representations[1]: "json" is in the list already`}},
		"no representation":      {rule("representations: []"), []string{"p:4: resources[0].representations: the list is empty|cache: never"}},
		"one representation":     {rule("representations: json"), []string{`p:4: resources[0].representations: this is "json": write a list here`}},
		"window without unit":    {rule("historyWindow: 60"), []string{"p:4: resources[0].historyWindow: this is the number 60: write a duration with its unit, 60s"}},
		"window too short":       {rule("historyWindow: 999ms"), []string{`p:4: resources[0].historyWindow: "999ms" is out of bounds: write a duration from 1s to 1h0m0s`}},
		"window too long":        {rule("historyWindow: 61m"), []string{`p:4: resources[0].historyWindow: "61m" is out of bounds`}},
		"window of zero":         {rule("historyWindow: 0"), []string{"p:4: resources[0].historyWindow: the number 0 is out of bounds"}},
		"idle for an instant":    {rule("idleTimeout: 1ns"), []string{`p:4: resources[0].idleTimeout: "1ns" is too short|at least 10s, or 0 for ever`}},
		"a few bytes":            {rule("maxBytes: 512"), []string{"p:4: resources[0].maxBytes: the number 512 is less than|at least 1Mi"}},
		"negative idle time":     {rule("idleTimeout: -1s"), []string{`p:4: resources[0].idleTimeout: this is "-1s"|0 for ever`}},
		"quantity in words":      {rule("maxBytes: much"), []string{`p:4: resources[0].maxBytes: this is "much": write a quantity of bytes, 512Mi`}},
		"quantity with exponent": {rule("maxBytes: 1e999999999"), []string{"p:4: resources[0].maxBytes: this is"}},
		"part of a byte":         {rule("maxBytes: 0.5"), []string{"p:4: resources[0].maxBytes: this is the number 0.5"}},
		"negative quantity":      {rule("maxBytes: -1"), []string{"p:4: resources[0].maxBytes: this is the number -1"}},
		"more than there is":     {rule("maxBytes: 999999999999999Ti"), []string{"p:4: resources[0].maxBytes: this is"}},
		"truth in words":         {rule("sameForEveryone: yes"), []string{`p:4: resources[0].sameForEveryone: this is "yes": write true or false`}},
		"events":                 {head + "resources: [{group: '', resource: events, cache: onDemand}]\n", []string{"p:3: resources[0].cache: events cannot be kept|bookmarks|several of them can change in one revision"}},
		"newer events":           {head + "resources: [{group: events.k8s.io, resource: events, version: v1, cache: eager}]\n", []string{"p:3: resources[0].cache: events cannot be kept"}},
		"two rules":              {head + "resources:\n- {group: '', resource: pods, cache: never}\n- {group: '', resource: pods, maxBytes: 1Mi}\n", []string{"p:5: resources: a second rule for pods, after line 4: make them one"}},
		"eager but not kept":     {head + "defaults: {representations: [protobuf]}\nresources:\n- {group: '', resource: pods, version: v1, cache: eager}\n", []string{"p:5: resources: the rule for pods.v1 is eager|list its representations"}},
		"all at once": {head + "defaults: {cache: eager, historyWindow: 2}\nresources:\n- {group: core, resource: Pod, cache: x}\n- cache: eager\n  maxBytes: x\n", []string{
			"p:3: defaults.cache", "p:3: defaults.historyWindow", "p:5: resources[0].group", "p:5: resources[0].resource", "p:5: resources[0].cache",
			"p:6: resources[1].group", "p:6: resources[1].resource", "p:6: resources[1].cache", "p:7: resources[1].maxBytes",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := ParseConfig("p", []byte(test.text))
			if err == nil {
				t.Fatalf("accepted as %+v", c)
			}
			if c != nil {
				t.Error("a config beside the error")
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(test.want) {
				t.Fatalf("%d errors, not %d:\n%v", len(lines), len(test.want), err)
			}
			for i, want := range test.want {
				words := strings.Split(want, "|")
				if !strings.HasPrefix(lines[i], words[0]) {
					t.Errorf("%q does not begin with %q", lines[i], words[0])
				}
				for _, word := range words[1:] {
					if !strings.Contains(lines[i], word) {
						t.Errorf("%q does not say %q", lines[i], word)
					}
				}
			}
		})
	}
}

// TestWhatIsNeverKept: a rule that says how a resource is answered from memory, which is never there, is
// a mistake, unless rules with more detail inherit it that keep the resource.
func TestWhatIsNeverKept(t *testing.T) {
	const never = ", but the resource is never kept in memory: leave it out, or have it kept (cache: onDemand)"
	for body, want := range map[string]string{
		"resources: [{group: '', resource: pods, cache: never, consistentLists: true}]\n":                                  "p:3: resources: the rule for pods has consistentLists" + never,
		"resources: [{group: '', resource: pods, cache: never, consistentLists: always}]\n":                                "p:3: resources: the rule for pods has consistentLists" + never,
		"resources: [{group: '', resource: pods, version: v1, cache: never, watches: true}]\n":                             "p:3: resources: the rule for pods.v1 has watches" + never,
		"resources: [{group: apps, resource: '*', cache: never, watches: true}]\n":                                         "p:3: resources: the rule for *.apps has watches" + never,
		"resources: [{group: '', resource: secrets, consistentLists: true}]\n":                                             "p:3: resources: the rule for secrets has consistentLists" + never,
		"resources: [{group: '', resource: events, watches: true}]\n":                                                      "p:3: resources: the rule for events has watches" + never,
		"defaults: {cache: never}\nresources: [{group: '', resource: pods, watches: true}]\n":                              "p:4: resources: the rule for pods has watches" + never,
		"resources: [{group: '', resource: pods, cache: never, watches: true}, {group: '', resource: nodes}]\n":            "p:3: resources[1]: the rule for nodes says nothing: add cache or another field",
		"resources:\n- {group: a.b, resource: c, cache: never, watches: true}\n- {group: a.c, resource: c, maxBytes: 0}\n": "p:4: resources: the rule for c.a.b has watches" + never,

		"resources: [{group: '', resource: pods, cache: never, consistentLists: false, watches: false}]\n":                                                            "",
		"resources: [{group: '', resource: pods, cache: never}]\n":                                                                                                    "",
		"defaults: {cache: never, consistentLists: true, watches: true}\n":                                                                                            "",
		"resources: [{group: apps, resource: '*', cache: never, consistentLists: true}, {group: apps, resource: deployments, cache: onDemand}]\n":                     "",
		"resources: [{group: '', resource: pods, cache: never, newestAsAny: [{user: a}]}, {group: '', resource: pods, version: v1, cache: onDemand}]\n":               "",
		"resources: [{group: '', resource: '*', cache: never, watches: true}, {group: '', resource: pods, version: v1, cache: eager}]\n":                              "",
		"resources: [{group: '', resource: pods, cache: never}, {group: '', resource: pods, version: v1, cache: onDemand, consistentLists: always, watches: true}]\n": "",
	} {
		_, err := ParseConfig("p", []byte(head+body))
		if err == nil && want != "" || err != nil && err.Error() != want {
			t.Errorf("%q: %v, want %q", body, err, want)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	example, err := os.ReadFile("../docs/policy.example.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(example)
	for _, body := range []string{
		"", "defaults: {cache: never, maxBytes: 1.5Gi}\n",
		"resources:\n- {group: '', resource: pods, version: v1, cache: eager, representations: [json]}\n",
		"resources:\n- {group: '', resource: secrets, cache: onDemand}\n- &a {group: '', resource: '*', idleTimeout: 0}\n- *a\n",
		"? [a]\n: {b: !!binary x}\n<<: 1\n---\n",
	} {
		f.Add([]byte(head + body))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseConfig("p", data)
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if c != nil || !strings.HasPrefix(line, "p:") {
					t.Errorf("a config %v, or an error without its place: %q", c, line)
				}
			}
			return
		}
		for _, target := range append(c.RuleTargets(), RuleTarget{"", "v1", "events"}, RuleTarget{"events.k8s.io", "v1", "events"}, RuleTarget{"x", "y", "z"}) {
			rule := c.For(target.Group, target.Version, target.Resource)
			if isEvents(target.Group, target.Resource) && rule.Cache != CacheNever {
				t.Errorf("%s are kept", target)
			}
			if len(rule.Representations) == 0 || rule.Source == "" || rule.MaxBytes < 0 || rule.IdleTimeout != nil && *rule.IdleTimeout < 0 ||
				rule.HistoryWindow != 0 && (rule.HistoryWindow < time.Second || rule.HistoryWindow > time.Hour) {
				t.Errorf("%s: %+v", target, rule)
			}
		}
		for _, e := range c.Eager() {
			if e.Version == "" || e.Resource == AllResources || !c.For(e.Group, e.Version, e.Resource).Keeps(e.Representation) {
				t.Errorf("eager: %+v", e)
			}
		}
	})
}

func TestForDoesNotAllocate(t *testing.T) {
	c := parsed(t, "resources: [{group: '', resource: pods, version: v1, cache: eager}]")
	if n := testing.AllocsPerRun(100, func() {
		c.For("", "v1", "pods")
		c.For("", "v1", "secrets")
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestConfigFile: the digest is of the bytes that were read, as sha256sum has it.
func TestConfigFile(t *testing.T) {
	c, err := ParseConfig("p.yaml", []byte("apiVersion: listproxy.io/v1alpha1\nkind: Policy\n"))
	expect.NoError(t, err)
	want := File{Name: "p.yaml", SHA256: "09c9bf210fd2dc504b45f9ab2e54b76484fd07becacad306f662288b183de7b2"}
	if c.File() != want {
		t.Errorf("it is %+v, want %+v", c.File(), want)
	}
	if got := DefaultConfig().File(); got != (File{}) {
		t.Errorf("the default policy is of the file %+v", got)
	}
}
