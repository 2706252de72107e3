package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	cliflag "k8s.io/component-base/cli/flag"
)

// options has the values of all flags, in groups. The file of a group defines its flags, validates their values, and makes
// parts of the proxy from them.
type options struct {
	upstream  upstreamOptions
	cache     cacheOptions
	serving   servingOptions
	connect   connectOptions
	callers   callerOptions
	limits    limitOptions
	audit     auditOptions
	admin     adminOptions
	telemetry logOptions

	sections cliflag.NamedFlagSets // the flags by the title of their group, in the order of --help; set by AddFlags
}

// optionGroup is a group of flags.
type optionGroup interface {
	// AddFlags adds the flags to fs, and sets the group's fields to their defaults.
	AddFlags(fs *pflag.FlagSet)
	// Validate checks the values and reads the files that they name. The group keeps the results for its other methods.
	// An error names the flag and says what to give.
	Validate() error
}

// titledGroup is a group with its title in --help and in docs/reference.md. A title is what users look for.
type titledGroup struct {
	title string
	optionGroup
}

// groups returns all groups in the order of --help, the most important one first.
func (o *options) groups() []titledGroup {
	return []titledGroup{
		{"upstream", &o.upstream},
		{"cache", &o.cache},
		{"serving", &o.serving},
		{"proxy-url", &o.connect},
		{"authentication and authorization", &o.callers},
		{"limit", &o.limits},
		{"auditing", &o.audit},
		{"admin", &o.admin},
		{"log", &o.telemetry},
	}
}

// AddFlags adds the flags of all groups.
func (o *options) AddFlags(all *pflag.FlagSet) {
	for _, group := range o.groups() {
		fs := o.sections.FlagSet(group.title)
		fs.SortFlags = false
		group.AddFlags(fs)
		all.AddFlagSet(fs)
	}
}

// Validate validates each group. It returns the first error.
func (o *options) Validate() error {
	for _, group := range o.groups() {
		if err := group.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// checkDuration returns an error if the value of a flag is less than minimum.
func checkDuration(flag string, value, minimum time.Duration) error {
	if value < minimum {
		return fmt.Errorf("%s %v is too short: at least %v", flag, value, minimum)
	}
	return nil
}

// bytesVar adds a flag whose value is a number of bytes, like "2Gi".
func bytesVar(fs *pflag.FlagSet, p *resource.QuantityValue, name, value, usage string) {
	p.Quantity = resource.MustParse(value)
	fs.Var(p, name, usage)
}

// checkBytes returns an error if the value of a flag is negative, or less than minBytes, 64 KiB. Such a value most likely lacks
// its unit, like 512 for 512Mi. The value 0 means no bound.
func checkBytes(flag string, value resource.QuantityValue) error {
	const minBytes = 64 << 10
	if bytes := value.Value(); bytes == 0 || bytes >= minBytes {
		return nil
	}
	return fmt.Errorf("%s %s is less than any list needs: give at least 64Ki, like 512Mi or 2Gi, or 0 for no bound",
		flag, &value) // only the pointer has a String method
}
