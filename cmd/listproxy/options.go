package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	cliflag "k8s.io/component-base/cli/flag"
)

// options are the flags of the command line, in groups. Each group has a file of its own, with its flags, their
// validation, and the parts of the proxy that are made from their values.
type options struct {
	upstream  upstreamOptions
	cache     cacheOptions
	serving   servingOptions
	connect   connectOptions
	callers   callerOptions
	limits    limitOptions
	audit     auditOptions
	admin     adminOptions
	telemetry telemetryOptions

	sections cliflag.NamedFlagSets // the flags by group, as help shows them
	flags    *pflag.FlagSet        // all flags
}

func defaultOptions() *options {
	return &options{
		cache:     defaultCacheOptions(),
		serving:   defaultServingOptions(),
		connect:   connectOptions{port: -1},
		callers:   defaultCallerOptions(),
		limits:    defaultLimitOptions(),
		admin:     adminOptions{bindAddress: "127.0.0.1:8081"},
		telemetry: telemetryOptions{logFormat: "text", logLevel: "info"},
	}
}

// optionGroup is a group of flags.
type optionGroup interface {
	// AddFlags adds the flags to fs. The current values of the group's fields are their defaults.
	AddFlags(fs *pflag.FlagSet)
	// Validate checks the values, reads the files that they name, and keeps the results for the group's other
	// methods. An error names the flag and says what to give.
	Validate() error
}

// namedGroup is a group with its title in help and in docs/reference.md.
type namedGroup struct {
	name string
	optionGroup
}

// groups returns all groups in the order of help. The most important one is first.
func (o *options) groups() []namedGroup {
	return []namedGroup{
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
		fs := o.sections.FlagSet(group.name)
		fs.SortFlags = false
		group.AddFlags(fs)
		all.AddFlagSet(fs)
	}
	o.flags = all
}

// Validate checks each group.
func (o *options) Validate() error {
	for _, group := range o.groups() {
		if err := group.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// durationFlag is a flag with its duration, and the least duration that it takes.
type durationFlag struct {
	flag         string
	value, least time.Duration
}

// checkDurations returns an error if a duration is too short.
func checkDurations(flags ...durationFlag) error {
	for _, d := range flags {
		if d.value < d.least {
			return fmt.Errorf("%s %v is too short: at least %v", d.flag, d.value, d.least)
		}
	}
	return nil
}

// byteQuantity returns the default of a flag with a quantity of bytes.
func byteQuantity(text string) resource.QuantityValue {
	return resource.QuantityValue{Quantity: resource.MustParse(text)}
}

// leastBytes is the least bound that a flag takes. A smaller one most likely lacks its unit.
const leastBytes = 64 << 10

// checkBytes returns an error if the flag does not take the number of bytes.
func checkBytes(flag string, given resource.QuantityValue) error {
	if bytes := given.Value(); bytes < 0 || 0 < bytes && bytes < leastBytes {
		return fmt.Errorf("%s %s is less than any list needs: give at least 64Ki, like 512Mi or 2Gi, or 0 for no bound",
			flag, &given)
	}
	return nil
}
