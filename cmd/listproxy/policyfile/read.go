package policyfile

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"

	"github.com/listproxy/listproxy/policy"
)

// maxPolicyFile is more than ParseConfig takes, so that it says so.
const maxPolicyFile = 2 << 20

// ReadFlag reads the file that --config names; if the flag is not given, it is the default
// policy. An empty name is a variable that was not set, and not somebody's wish for the default.
func ReadFlag(fs *pflag.FlagSet, path string) (*policy.Config, error) {
	switch {
	case !fs.Changed("config"):
		return policy.DefaultConfig(), nil
	case path == "":
		return nil, errors.New("--config is empty: name the policy file, or leave the flag out")
	}
	c, err := read(path)
	if err != nil {
		return nil, fmt.Errorf("--config:\n%w", err)
	}
	return c, nil
}

// read reads a policy file.
func read(path string) (*policy.Config, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, maxPolicyFile))
	if err != nil {
		return nil, err
	}
	c, err := policy.ParseConfig(path, data)
	if err != nil {
		return nil, err
	}
	return c, checkNames(c)
}
