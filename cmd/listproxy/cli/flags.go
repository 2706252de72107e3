package cli

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/listproxy/listproxy/policy"
)

// AddConsistentLists adds the flag, which is true where it has no value.
func AddConsistentLists(fs *pflag.FlagSet, value *string, usage string) {
	fs.StringVar(value, "consistent-lists", *value, usage)
	fs.Lookup("consistent-lists").NoOptDefVal = string(policy.ConsistentOn)
}

// CheckConsistentLists returns what is wrong with a value of the flag.
func CheckConsistentLists(value string) error {
	switch policy.ConsistentLists(value) {
	case policy.ConsistentNever, policy.ConsistentOn, policy.ConsistentAlways:
		return nil
	}
	return fmt.Errorf("--consistent-lists %q: choose true, always or false", value)
}
