package main

import (
	"github.com/spf13/cobra"

	"github.com/listproxy/listproxy/cmd/listproxy/cli"
	"github.com/listproxy/listproxy/telemetry"
)

// complete tells shells what some flags of listproxy itself take. The command "completion" is
// cobra's own.
func complete(cmd *cobra.Command) {
	cli.Complete(cmd, "log-level", telemetry.Levels()...)
	cli.Complete(cmd, "log-format", string(telemetry.FormatText), string(telemetry.FormatJSON))
	cli.Complete(cmd, "tls-min-version", tlsVersions()...)
}
