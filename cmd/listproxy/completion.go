package main

import (
	"github.com/spf13/cobra"

	"github.com/listproxy/listproxy/telemetry"
)

// words are what some flags take, for shells to complete. The command "completion" is cobra's own.
func words() map[string][]string {
	return map[string][]string{
		"log-level":       telemetry.Levels(),
		"log-format":      {string(telemetry.FormatText), string(telemetry.FormatJSON)},
		"tls-min-version": tlsVersions(),
		"output":          {outputTable, outputJSON},
		"via":             {viaServer, viaProxyURL},
	}
}

// addCompletion tells shells what the flags of a command take.
func addCompletion(cmd *cobra.Command) {
	for flag, choices := range words() {
		if cmd.Flags().Lookup(flag) == nil {
			continue
		}
		// An error would mean that there is no such flag, or that it was said twice.
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp))
	}
}
