# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_dwell_global_optspecs
    string join \n h/help V/version
end

function __fish_dwell_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_dwell_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_dwell_using_subcommand
    set -l cmd (__fish_dwell_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c dwell -n "__fish_dwell_needs_command" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_needs_command" -s V -l version -d 'Print version'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "ping" -d 'Send probes and measure how long their replies take'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "reflect" -d 'Answer probes'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "load" -d 'Put load on this node or on the network'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "lab" -d 'Make and remove network namespaces that stand for machines'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "doctor" -d 'Say what this node can measure, and how well'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dwell -n "__fish_dwell_using_subcommand ping" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand reflect" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand load" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand lab" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping reflect load lab doctor help" -f -a "ping" -d 'Send probes and measure how long their replies take'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping reflect load lab doctor help" -f -a "reflect" -d 'Answer probes'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping reflect load lab doctor help" -f -a "load" -d 'Put load on this node or on the network'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping reflect load lab doctor help" -f -a "lab" -d 'Make and remove network namespaces that stand for machines'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping reflect load lab doctor help" -f -a "doctor" -d 'Say what this node can measure, and how well'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping reflect load lab doctor help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
