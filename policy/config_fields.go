package policy

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/listproxy/listproxy/policy/media"
)

// The bounds of settings.
const (
	minHistoryWindow = time.Second
	minIdleTimeout   = 10 * time.Second
	minMaxBytes      = 1 << 20
	maxHistoryWindow = time.Hour
)

// policy reads the whole file.
func (d *decoder) policy(root *yaml.Node) (defaults *statement, statements []*statement) {
	known := true
	fields := []field{
		{"apiVersion", func(path string, n *yaml.Node) {
			if value, ok := d.text(path, n); ok && value != ConfigAPIVersion {
				d.fault(n.Line, path, "%s is not known: write %s", describe(n), ConfigAPIVersion)
				known = false
			}
		}},
		{"kind", func(path string, n *yaml.Node) {
			if value, ok := d.text(path, n); ok && value != ConfigKind {
				d.fault(n.Line, path, "%s is not known: write %s", describe(n), ConfigKind)
				known = false
			}
		}},
		{"defaults", func(path string, n *yaml.Node) { defaults = d.defaults(path, n) }},
		{"resources", func(path string, n *yaml.Node) {
			d.sequence(path, n, func(path string, n *yaml.Node) {
				if s := d.rule(path, n); s != nil {
					statements = append(statements, s)
				}
			})
		}},
	}
	lines, ok := d.mapping("", root, fields)
	if !ok {
		return nil, nil
	}
	for _, head := range []struct{ name, want string }{{"apiVersion", ConfigAPIVersion}, {"kind", ConfigKind}} {
		if lines[head.name] == 0 {
			d.fault(root.Line, head.name, "is missing: write \"%s: %s\"", head.name, head.want)
		}
	}
	if !known {
		// Fields of another version of the file may have another meaning, so they are not checked.
		d.faults = slices.DeleteFunc(d.faults, func(f fault) bool {
			return !strings.HasPrefix(f.text, "apiVersion: ") && !strings.HasPrefix(f.text, "kind: ")
		})
		return nil, nil
	}
	d.checkDuplicates(statements)
	return defaults, statements
}

// settings are the fields that defaults and rules have in common, except cache.
func (d *decoder) settings(s *statement) []field {
	return []field{
		{"representations", func(path string, n *yaml.Node) { s.representations = d.representations(path, n) }},
		{"historyWindow", func(path string, n *yaml.Node) { s.historyWindow = d.historyWindow(path, n) }},
		{"maxBytes", func(path string, n *yaml.Node) { s.maxBytes = d.quantity(path, n) }},
		{"idleTimeout", func(path string, n *yaml.Node) { s.idleTimeout = d.idleTimeout(path, n) }},
		{"limitAtZero", func(path string, n *yaml.Node) { s.limitAtZero = word(d, path, n, LimitIgnored, LimitHonoured) }},
		{"consistentLists", func(path string, n *yaml.Node) { s.consistentLists = d.consistentLists(path, n) }},
		{"watches", func(path string, n *yaml.Node) { s.watches = d.boolean(path, n) }},
	}
}

func (d *decoder) defaults(path string, n *yaml.Node) *statement {
	s := &statement{line: n.Line}
	cache := field{"cache", func(path string, n *yaml.Node) {
		if n.Value == string(CacheEager) {
			d.fault(n.Line, path, "only a rule with a resource and a version can be eager: choose onDemand or never here")
			return
		}
		s.cache = word(d, path, n, CacheOnDemand, CacheNever)
	}}
	if _, ok := d.mapping(path, n, append([]field{cache}, d.settings(s)...)); !ok {
		return nil
	}
	return s
}

// rule reads one of the resources.
func (d *decoder) rule(path string, n *yaml.Node) *statement {
	s := &statement{line: n.Line}
	faults := len(d.faults)
	fields := append([]field{
		{"group", func(path string, n *yaml.Node) { s.target.Group = d.group(path, n) }},
		{"version", func(path string, n *yaml.Node) {
			s.target.Version = d.label(path, n, "the name of a version, v1, or leave it out for all versions")
		}},
		{"resource", func(path string, n *yaml.Node) { s.target.Resource = d.resource(path, n) }},
		{"cache", func(path string, n *yaml.Node) { s.cache = word(d, path, n, CacheEager, CacheOnDemand, CacheNever) }},
	}, d.settings(s)...)
	fields = append(fields,
		field{"sameForEveryone", func(path string, n *yaml.Node) { s.sameForEveryone = d.boolean(path, n) }},
		field{"newestAsAny", func(path string, n *yaml.Node) { s.newestAsAny = d.callers(path, n) }},
	)
	lines, ok := d.mapping(path, n, fields)
	if !ok {
		return nil
	}
	s.lines = lines
	if lines["group"] == 0 {
		d.fault(n.Line, join(path, "group"), "is missing: write it, \"\" for the core group")
	}
	if lines["resource"] == 0 {
		d.fault(n.Line, join(path, "resource"), "is missing: write its plural name, pods, or \"*\" for all of the group")
	}
	d.checkRule(path, s)
	if len(d.faults) == faults && len(lines) == countOf(lines, "group", "version", "resource") {
		d.fault(n.Line, path, "the rule for %s says nothing: add cache or another field", s.target)
	}
	return s
}

// checkRule finds settings that contradict each other.
func (d *decoder) checkRule(path string, s *statement) {
	t := s.target
	eager := s.cache != nil && *s.cache == CacheEager
	if t.Resource == AllResources {
		if t.Version != "" {
			d.fault(s.lines["version"], join(path, "version"),
				"a rule for all resources of a group is for all versions: leave it out, or name the resource")
		}
		if eager {
			d.fault(s.lines["cache"], join(path, "cache"),
				"only a rule with a resource and a version can be eager: name them, or choose onDemand or never")
		}
		if s.sameForEveryone != nil {
			d.fault(s.lines["sameForEveryone"], join(path, "sameForEveryone"), "can be vouched for one resource only: name the resource")
		}
		if s.newestAsAny != nil {
			d.fault(s.lines["newestAsAny"], join(path, "newestAsAny"),
				"is for one resource only, so that it is never given by accident: name the resource")
		}
	} else if eager && s.lines["version"] == 0 {
		d.fault(s.lines["cache"], join(path, "cache"),
			"what is eager is read before anybody asks, so it has to be known in which version: add version: v1, or whichever the clients ask for")
	}
	if isEvents(t.Group, t.Resource) && s.cache != nil && *s.cache != CacheNever {
		d.fault(s.lines["cache"], join(path, "cache"), "events cannot be kept: their watches get no bookmarks, so nobody could say how far "+
			"they are known, and several of them can change in one revision: write never, or leave it out")
	}
}

func countOf(lines map[string]int, names ...string) int {
	n := 0
	for _, name := range names {
		if lines[name] != 0 {
			n++
		}
	}
	return n
}

func (d *decoder) checkDuplicates(statements []*statement) {
	first := map[RuleTarget]int{}
	for _, s := range statements {
		if s.target.Resource == "" {
			continue
		}
		if line, found := first[s.target]; found {
			d.fault(s.line, "resources", "a second rule for %s, after line %d: make them one", s.target, line)
			continue
		}
		first[s.target] = s.line
	}
}

// checkEager: what is loaded at the start must be kept.
func (d *decoder) checkEager(c *Config, statements []*statement) {
	for _, s := range statements {
		if s.cache != nil && *s.cache == CacheEager && !c.Rule(s.target).Keeps(media.JSON) && s.representations == nil {
			d.fault(s.lines["cache"], "resources", "the rule for %s is eager and lists no representations, which means json, but inherits that "+
				"json is not kept: list its representations", s.target)
		}
	}
}

// checkKept: what a rule says about answers from memory is an error if the resource is never in
// memory. A rule with less detail may say it for those with more, which inherit from it.
func (d *decoder) checkKept(c *Config, statements []*statement) {
	for _, s := range statements {
		t := s.target
		if slices.ContainsFunc(statements, func(o *statement) bool { return t.covers(o.target) && c.Rule(o.target).Cache != CacheNever }) {
			continue
		}
		for _, about := range []struct {
			field string
			said  bool
		}{
			{"consistentLists", s.consistentLists != nil && *s.consistentLists != ConsistentNever},
			{"watches", s.watches != nil && *s.watches},
			{"newestAsAny", len(s.newestAsAny) > 0},
		} {
			if about.said {
				d.fault(s.lines[about.field], "resources",
					"the rule for %s has %s, but the resource is never kept in memory: leave it out, or have it kept (cache: onDemand)", t, about.field)
			}
		}
	}
}

// versionForm is what versions of the API look like.
var versionForm = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)

func (d *decoder) group(path string, n *yaml.Node) string {
	group, ok := d.text(path, n)
	switch {
	case !ok, group == "":
	case group == "core":
		d.fault(n.Line, path, "the core group has an empty name: write \"\"")
	case versionForm.MatchString(group):
		d.fault(n.Line, path, "%s is a version: the core group has an empty name, write \"\"", describe(n))
	case len(validation.IsDNS1123Subdomain(group)) > 0:
		d.fault(n.Line, path, "%s is no API group: write its name without the version, apps, or \"\" for the core group", describe(n))
	}
	return group
}

func (d *decoder) resource(path string, n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode && n.Value == AllResources {
		return AllResources
	}
	return d.label(path, n, "the plural name in lower case, pods, or \"*\" for all of the group")
}

// label reads a name of the alphabet of paths.
func (d *decoder) label(path string, n *yaml.Node, instead string) string {
	value, ok := d.text(path, n)
	if ok && len(validation.IsDNS1035Label(value)) > 0 {
		d.fault(n.Line, path, "%s is no such name: write %s", describe(n), instead)
	}
	return value
}

func (d *decoder) representations(path string, n *yaml.Node) []media.Representation {
	var found []media.Representation
	ok := d.sequence(path, n, func(path string, n *yaml.Node) {
		representation := word(d, path, n, media.All()...)
		switch {
		case representation == nil:
		case slices.Contains(found, *representation):
			d.fault(n.Line, path, "%s is in the list already: leave it out", describe(n))
		default:
			found = append(found, *representation)
		}
	})
	if ok && len(n.Content) == 0 {
		d.fault(n.Line, path, "the list is empty: name a representation, leave the field out for all, or write cache: never")
	}
	return found
}

func (d *decoder) historyWindow(path string, n *yaml.Node) *time.Duration {
	window := d.duration(path, n, "60s or 2m30s")
	if window != nil && (*window < minHistoryWindow || *window > maxHistoryWindow) {
		d.fault(n.Line, path, "%s is out of bounds: write a duration from %v to %v", describe(n), minHistoryWindow, maxHistoryWindow)
		return nil
	}
	return window
}

func (d *decoder) idleTimeout(path string, n *yaml.Node) *time.Duration {
	idle := d.duration(path, n, "10m, or 0 for ever")
	if idle != nil && *idle > 0 && *idle < minIdleTimeout {
		d.fault(n.Line, path, "%s is too short, it would be loaded again and again: write at least %v, or 0 for ever", describe(n),
			minIdleTimeout)
		return nil
	}
	return idle
}

func (d *decoder) duration(path string, n *yaml.Node, instead string) *time.Duration {
	// 0 is the one duration without a unit, and a number to YAML.
	if n.Kind == yaml.ScalarNode && (n.Tag == "!!str" || n.Value == "0") {
		if value, err := time.ParseDuration(n.Value); err == nil && value >= 0 {
			return &value
		}
	}
	d.fault(n.Line, path, "this is %s: write a duration with its unit, %s", describe(n), instead)
	return nil
}

// bytesForm is the form of quantities of bytes. Kubernetes' other forms (100m, 1e3) are not accepted:
// nobody writes bytes like that.
var bytesForm = regexp.MustCompile(`^(0|[1-9][0-9]{0,14})(\.[0-9]{1,3})?([KMGT]i|[kMGT])?$`)

func (d *decoder) quantity(path string, n *yaml.Node) *int64 {
	if n.Kind == yaml.ScalarNode && n.Tag != "!!bool" && n.Tag != "!!null" && bytesForm.MatchString(n.Value) {
		quantity, err := resource.ParseQuantity(n.Value)
		if value := quantity.Value(); err == nil && value < math.MaxInt64 && quantity.CmpInt64(value) == 0 {
			if value > 0 && value < minMaxBytes {
				d.fault(n.Line, path, "%s is less than a single object may have: write at least 1Mi, or 0 for no bound of its own", describe(n))
				return nil
			}
			return &value
		}
	}
	d.fault(n.Line, path, "this is %s: write a quantity of bytes, 512Mi or 2Gi, or 0 for no bound of its own", describe(n))
	return nil
}

func (d *decoder) consistentLists(path string, n *yaml.Node) *ConsistentLists {
	if n.Kind == yaml.ScalarNode && (n.Tag == "!!bool" || n.Value == string(ConsistentAlways)) {
		return new(ConsistentLists(strings.ToLower(n.Value)))
	}
	d.fault(n.Line, path, "this is %s: write true, false or always", describe(n))
	return nil
}

func (d *decoder) boolean(path string, n *yaml.Node) *bool {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" {
		d.fault(n.Line, path, "this is %s: write true or false", describe(n))
		return nil
	}
	return new(strings.EqualFold(n.Value, "true"))
}
