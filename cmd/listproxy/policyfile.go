package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/listproxy/listproxy/policy"
)

// newPolicyCommand returns the command for policy files. Without a subcommand it prints its help. It never contacts a cluster.
func newPolicyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Check a policy file",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "check FILE",
		Short: "Say what is wrong with a policy file",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := readPolicy(args[0]); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: ok\n", args[0])
			return err
		},
	})
	return cmd
}

// readPolicyFlag reads the policy file at path, the value of --config. An empty path stands for the built-in policy.
func readPolicyFlag(path string) (*policy.File, error) {
	if path == "" {
		return &policy.File{}, nil
	}
	f, err := readPolicy(path)
	if err != nil {
		return nil, fmt.Errorf("--config:\n%w", err)
	}
	return f, nil
}

// readPolicy reads a policy file.
func readPolicy(path string) (*policy.File, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return policy.ParseFile(path, data)
}
