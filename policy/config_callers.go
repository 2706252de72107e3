package policy

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// callers reads a list of callers; an empty one is not nil.
func (d *decoder) callers(path string, n *yaml.Node) []Caller {
	found := []Caller{}
	d.sequence(path, n, func(path string, n *yaml.Node) {
		c, ok := d.caller(path, n)
		switch {
		case !ok:
		case slices.Contains(found, c):
			d.fault(n.Line, path, "%s is in the list already: leave it out", c)
		default:
			found = append(found, c)
		}
	})
	return found
}

// caller reads one of them.
func (d *decoder) caller(path string, n *yaml.Node) (Caller, bool) {
	var c Caller
	faults := len(d.faults)
	name := func(value *string, wrong func(string) string) func(string, *yaml.Node) {
		return func(path string, n *yaml.Node) {
			text, ok := d.text(path, n)
			if !ok {
				return
			}
			if why := wrong(text); why != "" {
				d.fault(n.Line, path, "%s %s", describe(n), why)
				return
			}
			*value = text
		}
	}
	lines, ok := d.mapping(path, n, []field{
		{"user", name(&c.User, wrongUser)},
		{"group", name(&c.Group, wrongGroup)},
		{"serviceAccount", name(&c.ServiceAccount, wrongServiceAccount)},
	})
	if ok && len(d.faults) == faults && len(lines) != 1 {
		d.fault(n.Line, path, "this names %d callers: write one of user, group and serviceAccount here, and each of several by itself",
			len(lines))
	}
	return c, ok && len(d.faults) == faults
}

// checkNewestAsAny: an empty list is allowed only where it removes callers: those of the rule for
// all versions.
func (d *decoder) checkNewestAsAny(c *Config, statements []*statement) {
	for _, s := range statements {
		t := s.target
		allVersions := c.Rule(RuleTarget{Group: t.Group, Resource: t.Resource})
		if s.newestAsAny != nil && len(s.newestAsAny) == 0 && (t.Version == "" || len(allVersions.NewestAsAny) == 0) {
			d.fault(s.lines["newestAsAny"], "resources", "newestAsAny of the rule for %s is empty, and there is no rule for all versions that "+
				"names callers, which it could take back: name a caller, or leave the field out", t)
		}
	}
}
