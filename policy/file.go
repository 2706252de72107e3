package policy

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// The head of every policy file.
const (
	configAPIVersion = "listproxy.io/v1alpha1"
	configKind       = "Policy"
)

// File is a policy file. The zero File stands for no file: its policy is the built-in one. The comments of its fields, and of
// the fields below, are for users: docs/reference.md has them word for word (TestReference).
type File struct {
	// APIVersion is `listproxy.io/v1alpha1`.
	APIVersion string `json:"apiVersion"`
	// Kind is `Policy`.
	Kind string `json:"kind"`
	// Defaults is what holds for every resource without a rule of its own.
	Defaults settings `json:"defaults"`
	// Resources is a list of rules, in any order, each for a resource in all its versions.
	Resources []writtenRule `json:"resources"`
}

// writtenRule is a rule as written in the file.
type writtenRule struct {
	// Group is the API group without its version, required; "" is the core group.
	Group *string `json:"group"`
	// Resource is the plural name, required; "*" is every resource of the group.
	Resource string `json:"resource"`
	settings
}

// settings are the settings of a rule. A setting that is not given is inherited (see Config).
type settings struct {
	// Cache is onDemand (loaded when asked for, dropped when idle) or never (always forwarded, with the reason not-cached).
	// Default: onDemand; for Events never; for Secrets never, unless a rule that names them sets it.
	Cache CacheMode `json:"cache"`
	// HistoryWindow is how far back a revision can be asked for, 1s to 1h. Default: --history-window.
	// More costs memory for every object that changes.
	HistoryWindow any `json:"historyWindow"`
	// LimitAtZero is the meaning of limit in a list with resourceVersion=0. ignore (default): none, the whole list is
	// written, as kube-apiserver does. honour: a page is written, with a continue token; lighter on memory and network, but not
	// what kube-apiserver would answer, and clients that do not ask for the next page miss objects.
	LimitAtZero LimitAtZero `json:"limitAtZero"`
	// ConsistentLists is which lists that name no resourceVersion are answered from memory: true, always
	// or false, as in --consistent-lists, which is the default.
	ConsistentLists any `json:"consistentLists"`
	// Watches is whether watches and streaming lists are answered from memory. Default: --watches.
	Watches *bool `json:"watches"`
}

// ParseFile parses data, the content of a policy file in YAML or JSON. name is the file's name in errors. An unknown or
// repeated field is an error. Errors name the field, and say what is wrong.
func ParseFile(name string, data []byte) (*File, error) {
	var f File
	errs := f.decode(data)
	if len(errs) == 0 {
		for _, err := range f.validate() {
			errs = append(errs, err)
		}
	}
	for i, err := range errs {
		errs[i] = fmt.Errorf("%s: %w", name, err)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &f, nil
}

// secondDocument matches a file with two documents: between two lines that are neither empty nor comments, it has a line that
// begins with ---. The YAML decoder would ignore the second document.
var secondDocument = regexp.MustCompile(`(?ms)^\s*[^#\s].*^---\s*(#[^\n]*\n\s*)*[^#\s]`)

// decode decodes the only document in data into f. It returns errors in the syntax, and unknown or repeated fields.
func (f *File) decode(data []byte) []error {
	if secondDocument.Match(data) {
		return []error{errors.New("a second document begins with ---: one file holds one policy")}
	}
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return []error{err}
	}
	errs, err := json.UnmarshalStrict(text, f)
	if err != nil {
		return []error{err}
	}
	return errs
}

// Switches are the flags with the defaults of two settings.
type Switches struct {
	// ConsistentLists is --consistent-lists.
	ConsistentLists ConsistentLists
	// Watches is --watches.
	Watches bool
}

// Config returns the policy. Each rule inherits the settings that it does not give:
//
//	given for             inherits from
//	one resource          the rule for "*" of its group, else the file's defaults
//	"*" of a group        the file's defaults
//	the file's defaults   the built-in defaults, which include the switches
//
// Secrets and Events are exceptions: their own rules inherit CacheNever (see RuleFor).
func (f *File) Config(s Switches) *Config {
	builtIn := Rule{
		Cache:           CacheOnDemand,
		LimitAtZero:     LimitIgnored,
		ConsistentLists: s.ConsistentLists,
		Watches:         s.Watches,
	}
	c := &Config{defaults: f.Defaults.inherit(builtIn), rules: make(map[schema.GroupResource]Rule, len(f.Resources))}
	for _, rule := range f.Resources {
		if rule.Resource == AllResources {
			c.rules[rule.target()] = rule.inherit(c.defaults)
		}
	}
	for _, rule := range f.Resources {
		if rule.Resource != AllResources {
			// The resource has no rule of its own yet: RuleFor returns the rule for its group, or the defaults.
			base := c.RuleFor(rule.target().Group, rule.Resource)
			c.rules[rule.target()] = rule.inherit(base)
		}
	}
	return c
}

// inherit returns a rule with the settings that s gives. A setting that s does not give is that of base.
func (s settings) inherit(base Rule) Rule {
	return Rule{
		Cache:           cmp.Or(s.Cache, base.Cache),
		HistoryWindow:   cmp.Or(s.window(), base.HistoryWindow),
		LimitAtZero:     cmp.Or(s.LimitAtZero, base.LimitAtZero),
		ConsistentLists: cmp.Or(s.consistentLists(), base.ConsistentLists),
		Watches:         *cmp.Or(s.Watches, &base.Watches), // a nil Watches is not given
	}
}

// target returns the resource that the rule is for. If the rule has no group, which validate refuses, the group is the core
// group.
func (w writtenRule) target() schema.GroupResource {
	target := schema.GroupResource{Resource: w.Resource}
	if w.Group != nil {
		target.Group = *w.Group
	}
	return target
}

// window returns the history window, or 0 if it is not given, or not a duration. HistoryWindow has the type any so that the
// decoder accepts a number like 60. Then validate refuses it, with an error that asks for a unit.
func (s settings) window() time.Duration {
	text, _ := s.HistoryWindow.(string)
	window, _ := time.ParseDuration(text)
	return window
}

// consistentLists returns the setting, or "" if it is not given. The decoder reads true and false as a bool, and the word
// always as a string. Both are printed as they are written.
func (s settings) consistentLists() ConsistentLists {
	if s.ConsistentLists == nil {
		return ""
	}
	return ConsistentLists(fmt.Sprint(s.ConsistentLists))
}
