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
complete -c dwell -n "__fish_dwell_needs_command" -f -a "ping" -d 'Send probes and measure their round-trip delay'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "range" -d 'Estimate the distance of a device from round-trip times'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "reflect" -d 'Answer probes'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "node-sim" -d 'Answer requests like a microcontroller with a coarse clock and a slow console'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "relay" -d 'Forward packets and measure their delay inside this node'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "pace" -d 'Send packet pairs or trains on schedule and measure the timing error'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "load" -d 'Load this node\'s CPUs or the network'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "trace" -d 'Timestamp packets that pass through this node, from any sender'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "lab" -d 'Create and remove labs: network namespaces that act as machines'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "agent" -d 'Measure continuously on a schedule, and keep the results for a hub'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "doctor" -d 'Report what this node can measure, and how precisely'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "worker" -d 'Execute jobs for a controller over standard input and output'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "run" -d 'Run a plan: all trials of its matrix, each stored as soon as it ends'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "runs" -d 'List the runs in the data directory'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "show" -d 'Show the results of a run'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "report" -d 'Write a self-contained HTML report of a run'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "compare" -d 'Compare runs: differences of percentiles, with confidence intervals'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "export" -d 'Export the samples of a run'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "import" -d 'Import measurements of dwell or another program'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "audit" -d 'Check a published table, a description of tables or a run: numbers that contradict their rows, ticks, time-outs, closed loops, drift'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "fit" -d 'Fit a model of a relaying node to a run'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "predict" -d 'Predict end-to-end delays from models, and choose relays that meet a deadline'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "note" -d 'Add a note to a run'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "delete" -d 'Delete a run and its samples'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "replay" -d 'Repeat the experiment of a founding document and judge its claims'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "device" -d 'Manage devices: machines that are reached by SSH'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "serve" -d 'Serve pages and an HTTP API about runs, devices and experiments'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "hub" -d 'Collect the results of a fleet\'s agents, and apply schedules'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "query" -d 'Show the delays of a pair of nodes over time'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "completions" -d 'Print shell completions to standard output'
complete -c dwell -n "__fish_dwell_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dwell -n "__fish_dwell_using_subcommand ping" -s c -l count -d 'Number of probes to send, by each client' -r
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l clients -d 'Number of clients that send probes at the same time, each from a socket of its own; 1 to 64. Ids of the second client start at 2^32, of the third at 2 * 2^32 [default: 1]' -r
complete -c dwell -n "__fish_dwell_using_subcommand ping" -s w -l deadline -d 'Send no probe later than this time after the first' -r
complete -c dwell -n "__fish_dwell_using_subcommand ping" -s W -l timeout -d 'Replies that arrive after this time are late [default: 1s]' -r
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l stamps -d 'Timestamps to use' -r -f -a "auto\t'Kernel timestamps if available, in addition to the program\'s'
user\t'Only clock reads of the program'
kernel\t'Kernel timestamps. Exits with code 4 if unavailable'
driver\t'Kernel timestamps, and those of an XDP program in the driver that receives the replies. Exits with code 4 if the program cannot be loaded'"
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l icmp-socket -d 'ICMP: kind of socket' -r -f -a "auto\t'A ping socket if permitted, otherwise a raw socket'
ping\t'A ping socket (net.ipv4.ping_group_range)'
raw\t'A raw socket (CAP_NET_RAW)'"
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l pattern -d 'Payload contents' -r -f -a "random\t'Random bytes, the same in every probe'
zero\t'Zeros'"
complete -c dwell -n "__fish_dwell_using_subcommand ping" -s t -l ttl -d 'TTL or hop limit of probes. A udp:// reply carries the arriving TTL - 1, so udp:// needs at least twice the number of routers + 2' -r
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l dscp -d 'DSCP of probes, 0 to 63' -r
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l explain-above -d 'Like --explain, for round trips above this time' -r
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l cpu -d 'CPU to run on' -r
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l scheduling -d 'Scheduling class. auto: real-time (SCHED_FIFO) if permitted, for open-loop pings and sampled traffic that sleep most of the time; other for the rest' -r -f -a "auto\t'Chosen by the kind of work'
other\t'Time-sharing (SCHED_OTHER)'
fifo\t'Real-time priority (SCHED_FIFO). Exits with code 4 if not permitted'"
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l key-file -d 'STAMP authenticated mode: file with the key in hexadecimal, readable only by its owner. Alternatively set the environment variable DWELL_KEY' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l path -d 'Measure the delay inside each relay on the path, in both directions. STAMP probes carry this number of empty slots, and a relay started with --telemetry fills one per direction. Clocks need not be synchronised' -r
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l interface -d '--stamps driver: interface on which replies arrive; repeatable [default: the one that probes leave through]' -r
complete -c dwell -n "__fish_dwell_using_subcommand ping" -s I -l from -d 'Local address or interface to send from' -r
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l csv -d 'Write one row per probe to this CSV file; `-` is standard output, without the summary' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l samples -d 'Write all timestamps of all probes to this file, for `dwell import`' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l fail-if -d 'Exit with code 3 if the condition holds, or 5 if it cannot be decided, like \'p99 > 10ms\' or \'loss > 1%\'. Repeatable' -r
complete -c dwell -n "__fish_dwell_using_subcommand ping" -s i -l interval -d 'Time between probes [default: 1s; for text+udp and text+tcp see --pause]' -r
complete -c dwell -n "__fish_dwell_using_subcommand ping" -s s -l size -d 'Payload size in bytes [default: 56 for icmp, 64 for udp and tcp, 76 for stamp (164 with a key); fixed for the others]' -r
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l pause -d 'Closed loop: pause after each reply [default: 0s; text+udp and text+tcp: 1s]' -r
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l warm-up -d 'Number of warm-up probes, which are not counted. The last three are sent at the measurement rate [default: 8; text+udp and text+tcp: 1]' -r
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l closed-loop -d 'Send each probe after the reply to the previous one, or its time-out'
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l sched-stamps -d 'Also request the kernel timestamp taken before the queueing discipline (tx_sched)'
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l nagle -d 'TCP: delay a probe while an earlier one is not acknowledged (Nagle\'s algorithm). Without it, probes leave at once (TCP_NODELAY)'
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l quick-ack -d 'TCP: acknowledge replies at once (TCP_QUICKACK). Without it, the kernel delays acknowledgements without data, by 40 ms or more'
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l explain -d 'Name the causes of spikes, which are round trips above the median + 10 MAD: the thread that had the processor, interrupts, softirqs, idle exits. Needs root; otherwise only run-queue wait and steal are known'
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l no-idle -d 'Keep the processors of this machine out of idle states during the measurement, by holding /dev/cpu_dma_latency at 0 us. Needs root; otherwise a warning in the result'
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l busy-poll -d 'Poll without sleeping: lowest delay, but occupies a CPU'
complete -c dwell -n "__fish_dwell_using_subcommand ping" -s 4 -d 'Use IPv4 only'
complete -c dwell -n "__fish_dwell_using_subcommand ping" -s 6 -d 'Use IPv6 only'
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l jsonl -d 'Print one JSON line per reply as it arrives'
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l json -d 'Print the summary as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand ping" -s q -l quiet -d 'Print only the result: no progress, no line per reply'
complete -c dwell -n "__fish_dwell_using_subcommand ping" -s v -l verbose -d 'Print every reply at any rate, and the full table of metrics'
complete -c dwell -n "__fish_dwell_using_subcommand ping" -l live -d 'Show running percentiles, losses and a timeline that redraw in place, then the result'
complete -c dwell -n "__fish_dwell_using_subcommand ping" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dwell -n "__fish_dwell_using_subcommand range; and not __fish_seen_subcommand_from calibrate help" -l from -d 'Read round trips from a file instead: `rtts FILE` or `ftm FILE`; `-` is standard input' -r
complete -c dwell -n "__fish_dwell_using_subcommand range; and not __fish_seen_subcommand_from calibrate help" -l peer -d 'Results of 802.11 FTM: MAC address of the peer, if the file has several' -r
complete -c dwell -n "__fish_dwell_using_subcommand range; and not __fish_seen_subcommand_from calibrate help" -s c -l count -d 'Number of probes to send' -r
complete -c dwell -n "__fish_dwell_using_subcommand range; and not __fish_seen_subcommand_from calibrate help" -s i -l interval -d 'Time between probes, like 10ms' -r
complete -c dwell -n "__fish_dwell_using_subcommand range; and not __fish_seen_subcommand_from calibrate help" -s s -l size -d 'Payload size, like 64B [default: as in `ping`]' -r
complete -c dwell -n "__fish_dwell_using_subcommand range; and not __fish_seen_subcommand_from calibrate help" -s W -l timeout -d 'Replies that arrive after this time are not used' -r
complete -c dwell -n "__fish_dwell_using_subcommand range; and not __fish_seen_subcommand_from calibrate help" -l stamps -d 'Timestamps to use' -r -f -a "auto\t'Kernel timestamps if available, in addition to the program\'s'
user\t'Only clock reads of the program'
kernel\t'Kernel timestamps. Exits with code 4 if unavailable'
driver\t'Kernel timestamps, and those of an XDP program in the driver that receives the replies. Exits with code 4 if the program cannot be loaded'"
complete -c dwell -n "__fish_dwell_using_subcommand range; and not __fish_seen_subcommand_from calibrate help" -l cpu -d 'CPU to run on' -r
complete -c dwell -n "__fish_dwell_using_subcommand range; and not __fish_seen_subcommand_from calibrate help" -l scheduling -d 'Scheduling class. auto: real-time (SCHED_FIFO) if permitted, for open-loop pings and sampled traffic that sleep most of the time; other for the rest' -r -f -a "auto\t'Chosen by the kind of work'
other\t'Time-sharing (SCHED_OTHER)'
fifo\t'Real-time priority (SCHED_FIFO). Exits with code 4 if not permitted'"
complete -c dwell -n "__fish_dwell_using_subcommand range; and not __fish_seen_subcommand_from calibrate help" -l medium -d 'Medium between the devices, which sets the propagation speed' -r -f -a "air\t'Radio, also light, in air'
copper\t'Twisted pair of Cat 5e to Cat 7: 0.64 to 0.80 of the speed of light'
fibre\t'Glass fibre: 0.67 to 0.68 of the speed of light'"
complete -c dwell -n "__fish_dwell_using_subcommand range; and not __fish_seen_subcommand_from calibrate help" -l speed -d 'Propagation speed instead of a medium, like 0.66c or 200000km/s' -r
complete -c dwell -n "__fish_dwell_using_subcommand range; and not __fish_seen_subcommand_from calibrate help" -l calibration -d 'Calibration to use, a file written by `range calibrate`' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand range; and not __fish_seen_subcommand_from calibrate help" -l estimator -d 'Estimator of the main result: minimum, median or mode. All are printed' -r
complete -c dwell -n "__fish_dwell_using_subcommand range; and not __fish_seen_subcommand_from calibrate help" -l busy-poll -d 'Poll without sleeping: lowest delay, but occupies a CPU'
complete -c dwell -n "__fish_dwell_using_subcommand range; and not __fish_seen_subcommand_from calibrate help" -s q -l quiet -d 'Print only the result: no progress'
complete -c dwell -n "__fish_dwell_using_subcommand range; and not __fish_seen_subcommand_from calibrate help" -l json -d 'Print the result as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand range; and not __fish_seen_subcommand_from calibrate help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dwell -n "__fish_dwell_using_subcommand range; and not __fish_seen_subcommand_from calibrate help" -a "calibrate" -d 'Measure round trips at a known distance, for later measurements'
complete -c dwell -n "__fish_dwell_using_subcommand range; and not __fish_seen_subcommand_from calibrate help" -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dwell -n "__fish_dwell_using_subcommand range; and __fish_seen_subcommand_from calibrate" -l from -d 'Read round trips from a file instead: `rtts FILE` or `ftm FILE`; `-` is standard input' -r
complete -c dwell -n "__fish_dwell_using_subcommand range; and __fish_seen_subcommand_from calibrate" -l peer -d 'Results of 802.11 FTM: MAC address of the peer, if the file has several' -r
complete -c dwell -n "__fish_dwell_using_subcommand range; and __fish_seen_subcommand_from calibrate" -s c -l count -d 'Number of probes to send' -r
complete -c dwell -n "__fish_dwell_using_subcommand range; and __fish_seen_subcommand_from calibrate" -s i -l interval -d 'Time between probes, like 10ms' -r
complete -c dwell -n "__fish_dwell_using_subcommand range; and __fish_seen_subcommand_from calibrate" -s s -l size -d 'Payload size, like 64B [default: as in `ping`]' -r
complete -c dwell -n "__fish_dwell_using_subcommand range; and __fish_seen_subcommand_from calibrate" -s W -l timeout -d 'Replies that arrive after this time are not used' -r
complete -c dwell -n "__fish_dwell_using_subcommand range; and __fish_seen_subcommand_from calibrate" -l stamps -d 'Timestamps to use' -r -f -a "auto\t'Kernel timestamps if available, in addition to the program\'s'
user\t'Only clock reads of the program'
kernel\t'Kernel timestamps. Exits with code 4 if unavailable'
driver\t'Kernel timestamps, and those of an XDP program in the driver that receives the replies. Exits with code 4 if the program cannot be loaded'"
complete -c dwell -n "__fish_dwell_using_subcommand range; and __fish_seen_subcommand_from calibrate" -l cpu -d 'CPU to run on' -r
complete -c dwell -n "__fish_dwell_using_subcommand range; and __fish_seen_subcommand_from calibrate" -l scheduling -d 'Scheduling class. auto: real-time (SCHED_FIFO) if permitted, for open-loop pings and sampled traffic that sleep most of the time; other for the rest' -r -f -a "auto\t'Chosen by the kind of work'
other\t'Time-sharing (SCHED_OTHER)'
fifo\t'Real-time priority (SCHED_FIFO). Exits with code 4 if not permitted'"
complete -c dwell -n "__fish_dwell_using_subcommand range; and __fish_seen_subcommand_from calibrate" -l medium -d 'Medium between the devices, which sets the propagation speed' -r -f -a "air\t'Radio, also light, in air'
copper\t'Twisted pair of Cat 5e to Cat 7: 0.64 to 0.80 of the speed of light'
fibre\t'Glass fibre: 0.67 to 0.68 of the speed of light'"
complete -c dwell -n "__fish_dwell_using_subcommand range; and __fish_seen_subcommand_from calibrate" -l speed -d 'Propagation speed instead of a medium, like 0.66c or 200000km/s' -r
complete -c dwell -n "__fish_dwell_using_subcommand range; and __fish_seen_subcommand_from calibrate" -l distance -d 'Distance at which the calibration is measured, like 1m, 30cm or 2.5km' -r
complete -c dwell -n "__fish_dwell_using_subcommand range; and __fish_seen_subcommand_from calibrate" -l output -d 'File to write; `-` is standard output' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand range; and __fish_seen_subcommand_from calibrate" -l busy-poll -d 'Poll without sleeping: lowest delay, but occupies a CPU'
complete -c dwell -n "__fish_dwell_using_subcommand range; and __fish_seen_subcommand_from calibrate" -s q -l quiet -d 'Print only the result: no progress'
complete -c dwell -n "__fish_dwell_using_subcommand range; and __fish_seen_subcommand_from calibrate" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dwell -n "__fish_dwell_using_subcommand range; and __fish_seen_subcommand_from help" -f -a "calibrate" -d 'Measure round trips at a known distance, for later measurements'
complete -c dwell -n "__fish_dwell_using_subcommand range; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dwell -n "__fish_dwell_using_subcommand reflect" -l key-file -d 'STAMP: answer only packets authenticated with the key in this file (hexadecimal, readable only by its owner). Alternatively set the environment variable DWELL_KEY' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand reflect" -l replay-window -d 'STAMP with a key: answer each request once, and only if it is less than N numbers behind the newest of its session (address and SSID). 1 to 4096 [default: replays are answered]' -r
complete -c dwell -n "__fish_dwell_using_subcommand reflect" -l stamps -d 'Timestamp to use as T2' -r -f -a "auto\t'The deepest timestamp that the socket delivers'
user\t'Clock read of the program'"
complete -c dwell -n "__fish_dwell_using_subcommand reflect" -l limit -d 'Maximum reply rate per source address and port, like 1000pps, or off. A TCP connection is slowed down to it [default: off on loopback and in dwell\'s labs, else 100kpps for sources with private and link-local addresses and 10kpps for others]' -r
complete -c dwell -n "__fish_dwell_using_subcommand reflect" -l engine -d 'Engine that sends the replies. xdp and auto need root; see docs/reflect.md' -r -f -a "socket\t'Sockets, on any interface'
xdp\t'An XDP program on one interface, in the driver if it has native XDP; sockets for the rest. Attaching may reset the card'
auto\t'Like xdp; generic mode if native replies fail, sockets if there is no XDP'"
complete -c dwell -n "__fish_dwell_using_subcommand reflect" -l interface -d 'Interface on which --engine xdp or auto replies' -r
complete -c dwell -n "__fish_dwell_using_subcommand reflect" -l xdp-mode -d 'Where the XDP program runs [default: native if the driver has it, except on veth]' -r -f -a "native\t'In the driver, before a socket buffer exists'
generic\t'In the kernel, just after the driver; on any Ethernet interface'"
complete -c dwell -n "__fish_dwell_using_subcommand reflect" -l cpu -d 'CPU to run on' -r
complete -c dwell -n "__fish_dwell_using_subcommand reflect" -l scheduling -d 'Scheduling class. auto: real-time (SCHED_FIFO) if permitted, for open-loop pings and sampled traffic that sleep most of the time; other for the rest' -r -f -a "auto\t'Chosen by the kind of work'
other\t'Time-sharing (SCHED_OTHER)'
fifo\t'Real-time priority (SCHED_FIFO). Exits with code 4 if not permitted'"
complete -c dwell -n "__fish_dwell_using_subcommand reflect" -l stateless -d 'STAMP: return the sender\'s sequence number instead of counting per session'
complete -c dwell -n "__fish_dwell_using_subcommand reflect" -l allow-any-port -d 'Also answer source ports 7, 19, 862 and the ports of this reflector'
complete -c dwell -n "__fish_dwell_using_subcommand reflect" -l busy-poll -d 'Poll without sleeping: lowest delay, but occupies a CPU'
complete -c dwell -n "__fish_dwell_using_subcommand reflect" -l json -d 'Print the summary as one JSON object at the end'
complete -c dwell -n "__fish_dwell_using_subcommand reflect" -s q -l quiet -d 'Print only errors and the summary'
complete -c dwell -n "__fish_dwell_using_subcommand reflect" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dwell -n "__fish_dwell_using_subcommand node-sim" -l like -d 'Node to start from; the other options change single settings of it' -r -f -a "clean\t'Exact clock and no delays'
chung-2021-best\t'The Arduino of Chung 2021 with one client (tables 1 and 2)'
chung-2021-worst\t'The Arduino of Chung 2021 with several clients (tables 3 and 4)'"
complete -c dwell -n "__fish_dwell_using_subcommand node-sim" -l clock-tick -d 'Tick of the node\'s clock: delays are whole numbers of it. 0s is an exact clock' -r
complete -c dwell -n "__fish_dwell_using_subcommand node-sim" -l read-timeout -d 'Time-out of reads from streams: a read ends this long after its last byte. 0s disables it' -r
complete -c dwell -n "__fish_dwell_using_subcommand node-sim" -l repeated-reads -d 'Share of reads that time out twice, while the node has one connection' -r
complete -c dwell -n "__fish_dwell_using_subcommand node-sim" -l loop-time -d 'Time until the main loop comes around to a request, like 5ms or 280ms..640ms' -r
complete -c dwell -n "__fish_dwell_using_subcommand node-sim" -l print-delay -d 'Time to print a line on the console before the reply, like 20ms..40ms. Printing goes on during a read time-out' -r
complete -c dwell -n "__fish_dwell_using_subcommand node-sim" -l service-time -d 'Time for which a request occupies the node, like 1ms or 1ms..3ms; others wait for its end' -r
complete -c dwell -n "__fish_dwell_using_subcommand node-sim" -l sockets -d 'Number of connections at the same time, 1 to 256; others are refused' -r
complete -c dwell -n "__fish_dwell_using_subcommand node-sim" -l seed -d 'Seed of the random times [default: another one each time, named in the result]' -r
complete -c dwell -n "__fish_dwell_using_subcommand node-sim" -l cpu -d 'CPU to run on' -r
complete -c dwell -n "__fish_dwell_using_subcommand node-sim" -l scheduling -d 'Scheduling class. auto: real-time (SCHED_FIFO) if permitted, for open-loop pings and sampled traffic that sleep most of the time; other for the rest' -r -f -a "auto\t'Chosen by the kind of work'
other\t'Time-sharing (SCHED_OTHER)'
fifo\t'Real-time priority (SCHED_FIFO). Exits with code 4 if not permitted'"
complete -c dwell -n "__fish_dwell_using_subcommand node-sim" -l busy-poll -d 'Poll without sleeping: lowest delay, but occupies a CPU'
complete -c dwell -n "__fish_dwell_using_subcommand node-sim" -l json -d 'Print the summary as one JSON object at the end'
complete -c dwell -n "__fish_dwell_using_subcommand node-sim" -s q -l quiet -d 'Print only errors and the summary'
complete -c dwell -n "__fish_dwell_using_subcommand node-sim" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l listen -d 'Address that clients send to: udp://ADDRESS:PORT or tcp://ADDRESS:PORT' -r
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l to -d 'Address to relay to, with the same protocol as --listen' -r
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l mode -d 'Processing of payloads. translate: none, only addresses and ports change; encrypt: encrypt towards --to and decrypt replies; decrypt: the reverse of encrypt' -r -f -a "translate\t'Only addresses and ports change'
encrypt\t'Encrypts towards the destination and decrypts replies'
decrypt\t'Decrypts towards the destination and encrypts replies'"
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l cipher -d 'Encryption. aes-128-ctr: secrecy only, modified and replayed packets are accepted; aes-128-gcm: such packets are dropped' -r -f -a "aes-128-ctr\t'AES-128 in counter mode, as in Miya 2020: confidentiality without integrity'
aes-128-gcm\t'AES-128-GCM: confidentiality, integrity and replay protection'"
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l clear -d 'Bytes at the start of each payload to leave unencrypted; auto: the iperf2 header [default: 12]' -r
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l engine -d 'How packets are moved. socket: one receive and one send call per packet; batch: many packets per call; xdp: in the network driver (translate only)' -r -f -a "socket\t'One receive and one send call per packet, as in Miya 2020'
batch\t'Batches of packets per call'
xdp\t'In the driver, bypassing the kernel stack (translation only)'"
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l stamps -d 'Timestamps to use' -r -f -a "auto\t'Kernel timestamps if available, in addition to the program\'s'
user\t'Only clock reads of the program'
kernel\t'Kernel timestamps. Exits with code 4 if unavailable'"
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l id -d 'Format of the packet id in payloads; none: number packets in order of arrival' -r -f -a "auto\t'Detect it from the first packet of each flow'
iperf\t'The iperf2 header'
iperf-classic\t'The first 12 bytes of the iperf2 header; the bytes after them may be encrypted'
stamp\t'The STAMP sequence number'
roundtrip\t'The round-trip message of Roedlach/Vock'
dwell\t'The mark of `dwell load traffic`'
none\t'No id: packets are numbered in order of arrival, so loss and reordering break the matching'"
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l flows -d 'Maximum number of clients (at most 512 over TCP). A new client replaces the one idle for longest' -r
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l idle -d 'Forget a client, or close its connection, after this idle time; default 60s (TCP 124min)' -r
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l hold -d 'Delay every packet by this time, in the program or unread in the socket, like program:200us' -r
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l node-id -d 'Number of this node in telemetry' -r
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l cpu -d 'CPU to run on' -r
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l scheduling -d 'Scheduling class. auto: real-time (SCHED_FIFO) if permitted, for open-loop pings and sampled traffic that sleep most of the time; other for the rest' -r -f -a "auto\t'Chosen by the kind of work'
other\t'Time-sharing (SCHED_OTHER)'
fifo\t'Real-time priority (SCHED_FIFO). Exits with code 4 if not permitted'"
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l key-file -d 'File with the AES-128 key: 32 hexadecimal digits, unreadable for other users. The environment variable DWELL_KEY is an alternative' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l samples -d 'Write all timestamps of every packet to this file, as a sample segment' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l telemetry -d 'Fill empty telemetry slots in relayed STAMP packets'
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l busy-poll -d 'Poll without sleeping: lowest delay, but occupies a CPU'
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l merge -d 'Send packets of equal length as one buffer that the kernel segments late (UDP GSO). Raises the packet rate; removes kernel timestamps. Needs --engine batch; the default with --stamps user'
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l no-merge -d 'Send every packet separately'
complete -c dwell -n "__fish_dwell_using_subcommand relay" -l json -d 'Print the summary as one JSON object at the end'
complete -c dwell -n "__fish_dwell_using_subcommand relay" -s q -l quiet -d 'Print only errors and the summary'
complete -c dwell -n "__fish_dwell_using_subcommand relay" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l pattern -d 'Pattern of departures' -r -f -a "pair\t'Two packets back to back, repeatedly (Mok 2015)'
train\t'Packets at a constant rate (Mok 2015)'
poisson\t'Packets of a Poisson process'"
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l size -d 'Size of the IP packet, or of the part named before it, like frame:1514B [default: 1500B, or the path MTU if that is less]' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l payload-size -d 'Size of the UDP payload, instead of --size' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l frame-size -d 'Size of the Ethernet frame without its check sequence, instead of --size' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l pairs -d 'Number of pairs' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l gap -d 'Interval between pairs' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l rate -d 'Rate within a train, like 10Mbit/s' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l count -d 'Packets per train' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l repeat -d 'Number of trains' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l pause -d 'Minimum pause between trains; a random part of up to the same length is added [default: 10ms, or a gap if that is longer]' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l seed -d 'Seed of Poisson gaps' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l engine -d 'Sending engine, such as spin or gso (docs/pace.md has the list). auto measures all that work here and takes the most accurate' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l late -d 'Deadline: a packet that leaves later than this after its due time misses it [default: a gap]' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l warm-up -d 'Trains to send before measuring' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l stamps -d 'Timestamps to use' -r -f -a "auto\t'Kernel timestamps if available, in addition to the program\'s'
user\t'Only clock reads of the program'
kernel\t'Kernel timestamps. Exits with code 4 if unavailable'"
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l from -d 'Replay the gaps in this file instead of a pattern: one per line, like 12.5us, or in nanoseconds' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l cpu -d 'CPU to run on' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l scheduling -d 'Scheduling class. auto: real-time (SCHED_FIFO) if permitted, for open-loop pings and sampled traffic that sleep most of the time; other for the rest' -r -f -a "auto\t'Chosen by the kind of work'
other\t'Time-sharing (SCHED_OTHER)'
fifo\t'Real-time priority (SCHED_FIFO). Exits with code 4 if not permitted'"
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l samples -d 'Write all timestamps of every packet to this file, for `dwell import`' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l fail-if -d 'Exit with 3 if this condition holds, with 5 if it cannot be decided, like \'gap_error.p95 > 50us\'; repeatable' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l bypass -d 'Bypass the queueing discipline and its rate limit, with an engine that can'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l switch-offloads -d 'Switch off segmentation offload of the outgoing interface while sending, as gso needs'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l sink -d 'Use `dwell pace sink` at the URL: its timestamps where this machine has none, and its loss count'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l busy-poll -d 'Poll without sleeping: lowest delay, but occupies a CPU'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -s 4 -d 'Use IPv4 only'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -s 6 -d 'Use IPv6 only'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -l json -d 'Print the summary as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -s q -l quiet -d 'Print only the result, no progress'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -s v -l verbose -d 'Also print the four variability figures j and the comparison of engines'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -a "sink" -d 'Timestamp arriving packets for senders that use --sink'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and not __fish_seen_subcommand_from sink help" -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and __fish_seen_subcommand_from sink" -l cpu -d 'CPU to run on' -r
complete -c dwell -n "__fish_dwell_using_subcommand pace; and __fish_seen_subcommand_from sink" -l scheduling -d 'Scheduling class. auto: real-time (SCHED_FIFO) if permitted, for open-loop pings and sampled traffic that sleep most of the time; other for the rest' -r -f -a "auto\t'Chosen by the kind of work'
other\t'Time-sharing (SCHED_OTHER)'
fifo\t'Real-time priority (SCHED_FIFO). Exits with code 4 if not permitted'"
complete -c dwell -n "__fish_dwell_using_subcommand pace; and __fish_seen_subcommand_from sink" -l busy-poll -d 'Poll without sleeping: lowest delay, but occupies a CPU'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and __fish_seen_subcommand_from sink" -l json -d 'Print the summary as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and __fish_seen_subcommand_from sink" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and __fish_seen_subcommand_from help" -f -a "sink" -d 'Timestamp arriving packets for senders that use --sink'
complete -c dwell -n "__fish_dwell_using_subcommand pace; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dwell -n "__fish_dwell_using_subcommand load; and not __fish_seen_subcommand_from cpu traffic sink help" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand load; and not __fish_seen_subcommand_from cpu traffic sink help" -f -a "cpu" -d 'Keep CPUs busy for a share of the time'
complete -c dwell -n "__fish_dwell_using_subcommand load; and not __fish_seen_subcommand_from cpu traffic sink help" -f -a "traffic" -d 'Send UDP traffic at a rate, or bulk data over TCP'
complete -c dwell -n "__fish_dwell_using_subcommand load; and not __fish_seen_subcommand_from cpu traffic sink help" -f -a "sink" -d 'Receive and count traffic'
complete -c dwell -n "__fish_dwell_using_subcommand load; and not __fish_seen_subcommand_from cpu traffic sink help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from cpu" -l level -d 'Share of each CPU to use, above 0% and up to 100%' -r
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from cpu" -l cpu -d 'CPU to load; repeatable [default: all allowed CPUs]' -r
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from cpu" -l duration -d 'Stop after this time [default: until stopped]' -r
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from cpu" -l json -d 'Print the summary as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from cpu" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -l flows -d 'Number of flows, each with its own source port' -r
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -l rate -d 'Rate of all flows together, like 80Mbit/s or 200pps. Bits count IP packets with udp://, payload with tcp://. Required with udp:// [default with tcp://: unlimited]' -r
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -l distribution -d 'Gaps between packets: constant, poisson or pareto(SHAPE)' -r
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -l size -d 'UDP payload size [default: 1400B], or size of each write with tcp:// [default: 128KiB, or 10 ms of the rate]' -r
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -l header -d 'Header at the start of the payload [default: dwell]' -r -f -a "dwell\t'dwell\'s own header: flow and sequence number'
iperf\t'The iperf2 header: `iperf -s -u -e` counts and reports the flow. The last packet of a flow is a FIN, repeated until the server reports'"
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -l duration -d 'Stop after this time [default: until stopped]' -r
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -l count -d 'Stop after this many packets; with tcp:// after this many writes' -r
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -l stamps -d 'Timestamps to use for --samples: user space, or also the kernel\'s where available' -r -f -a "auto\t'Kernel timestamps if available, in addition to the program\'s'
user\t'Only clock reads of the program'
kernel\t'Kernel timestamps. Exits with code 4 if unavailable'"
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -l seed -d 'Seed of gaps and payload' -r
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -l bytes -d 'Stop after this many bytes of payload, like 100MB' -r
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -l cpu -d 'CPU to run on' -r
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -l scheduling -d 'Scheduling class. auto: real-time (SCHED_FIFO) if permitted, for open-loop pings and sampled traffic that sleep most of the time; other for the rest' -r -f -a "auto\t'Chosen by the kind of work'
other\t'Time-sharing (SCHED_OTHER)'
fifo\t'Real-time priority (SCHED_FIFO). Exits with code 4 if not permitted'"
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -l samples -d 'Write all timestamps of every packet to this file' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -l scan-channels -d 'Before sending, listen on the five nearest channels of the radio that leads to the target, and record their networks with --samples. Takes about a second; needs root'
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -l busy-poll -d 'Poll without sleeping: lowest delay, but occupies a CPU'
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -s 4 -d 'Use IPv4 only'
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -s 6 -d 'Use IPv6 only'
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -l json -d 'Print the summary as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from traffic" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from sink" -l duration -d 'Stop after this time [default: until stopped]' -r
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from sink" -l clock-error -d 'Maximum difference between the clocks of all senders and this one (0s: the same clock, as in a lab). Enables one-way delays of packets with an iperf header. Not needed for senders on loopback' -r
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from sink" -l stamps -d 'Timestamps to use: user space, or also the kernel\'s where available' -r -f -a "auto\t'Kernel timestamps if available, in addition to the program\'s'
user\t'Only clock reads of the program'
kernel\t'Kernel timestamps. Exits with code 4 if unavailable'"
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from sink" -l cpu -d 'CPU to run on' -r
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from sink" -l scheduling -d 'Scheduling class. auto: real-time (SCHED_FIFO) if permitted, for open-loop pings and sampled traffic that sleep most of the time; other for the rest' -r -f -a "auto\t'Chosen by the kind of work'
other\t'Time-sharing (SCHED_OTHER)'
fifo\t'Real-time priority (SCHED_FIFO). Exits with code 4 if not permitted'"
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from sink" -l samples -d 'Write all timestamps of every packet to this file' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from sink" -l busy-poll -d 'Poll without sleeping: lowest delay, but occupies a CPU'
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from sink" -l json -d 'Print the summary as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from sink" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from help" -f -a "cpu" -d 'Keep CPUs busy for a share of the time'
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from help" -f -a "traffic" -d 'Send UDP traffic at a rate, or bulk data over TCP'
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from help" -f -a "sink" -d 'Receive and count traffic'
complete -c dwell -n "__fish_dwell_using_subcommand load; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dwell -n "__fish_dwell_using_subcommand trace" -l flow -d 'Packets to trace: udp, tcp or icmp, then \'host ADDRESS\', \'port NUMBER\' or both, for either side' -r
complete -c dwell -n "__fish_dwell_using_subcommand trace" -l id -d 'Format of the packet id in UDP payloads; TCP and ICMP have sequence numbers' -r -f -a "auto\t'Detect it from the first packet of each flow'
iperf\t'The iperf2 header'
iperf-classic\t'The first 12 bytes of the iperf2 header; the bytes after them may be encrypted'
stamp\t'The STAMP sequence number'
roundtrip\t'The round-trip message of Roedlach/Vock'
dwell\t'The mark of `dwell load traffic`'
none\t'No id: packets are numbered in order of arrival, so loss and reordering break the matching'"
complete -c dwell -n "__fish_dwell_using_subcommand trace" -l hooks -d 'Hooks to use [default: all]' -r -f -a "netfilter\t'pre_routing and post_routing'
tcx\t'rx_tcx and tx_tcx'
xdp\t'rx_driver'"
complete -c dwell -n "__fish_dwell_using_subcommand trace" -l interface -d 'Interface for tcx and xdp; repeatable [default: all but loopback]' -r
complete -c dwell -n "__fish_dwell_using_subcommand trace" -l duration -d 'Stop after this time [default: until stopped]' -r
complete -c dwell -n "__fish_dwell_using_subcommand trace" -l samples -d 'Write all timestamps of every packet to this file' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand trace" -l json -d 'Print the summary as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand trace" -s q -l quiet -d 'Print only the result, no live table'
complete -c dwell -n "__fish_dwell_using_subcommand trace" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and not __fish_seen_subcommand_from up exec list routes down help" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and not __fish_seen_subcommand_from up exec list routes down help" -f -a "up" -d 'Create a lab: nodes, links, addresses and routes'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and not __fish_seen_subcommand_from up exec list routes down help" -f -a "exec" -d 'Run a command in a node'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and not __fish_seen_subcommand_from up exec list routes down help" -f -a "list" -d 'List the labs'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and not __fish_seen_subcommand_from up exec list routes down help" -f -a "routes" -d 'Print the routes between all nodes and where they come from'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and not __fish_seen_subcommand_from up exec list routes down help" -f -a "down" -d 'End all processes in a lab and remove it'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and not __fish_seen_subcommand_from up exec list routes down help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from up" -l name -d 'Name of the lab: letters, digits and hyphens [default: random]' -r
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from up" -l rate -d 'Rate of every link, like 10Mbit/s' -r
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from up" -l delay -d 'One-way delay of every link, like 5ms' -r
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from up" -l jitter -d 'Delay variation (plus or minus), like 1ms' -r
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from up" -l loss -d 'Share of packets lost, like 1%' -r
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from up" -l duplicate -d 'Share of packets duplicated, like 1%' -r
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from up" -l reorder -d 'Share of packets that skip the delay, like 1%' -r
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from up" -l seed -d 'Seed of random losses, duplicates, reordering and jitter; the same seed repeats them [default: random]' -r
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from up" -l mechanism -d 'Link emulation: netem, tbf or tap [default: the first that supports the link]' -r
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from up" -l routing -d 'Source of routes: static (set once by dwell) or babel (from babeld in every node)' -r
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from up" -l quota -d 'Share of one processor for everything in a node, like n2=20%. Repeatable' -r
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from up" -l replace -d 'First remove a lab of the same name and end its processes'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from up" -l json -d 'Print the lab as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from up" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from exec" -l lab -d 'Name of the lab [default: the only lab]' -r
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from exec" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from list" -l json -d 'Print all labs with their counters as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from routes" -l json -d 'Print the routes as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from routes" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from down" -l all -d 'Remove all labs'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from down" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from help" -f -a "up" -d 'Create a lab: nodes, links, addresses and routes'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from help" -f -a "exec" -d 'Run a command in a node'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from help" -f -a "list" -d 'List the labs'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from help" -f -a "routes" -d 'Print the routes between all nodes and where they come from'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from help" -f -a "down" -d 'End all processes in a lab and remove it'
complete -c dwell -n "__fish_dwell_using_subcommand lab; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dwell -n "__fish_dwell_using_subcommand agent" -l config -d 'Configuration (TOML)' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand agent" -s q -l quiet -d 'Print only errors'
complete -c dwell -n "__fish_dwell_using_subcommand agent" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand doctor" -l json -d 'Print the findings as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand worker" -l silence-timeout -d 'End after this time without a request, such as 30s' -r
complete -c dwell -n "__fish_dwell_using_subcommand worker" -l lease -d 'Hold the lease of this device for this run; fail if another run holds it' -r
complete -c dwell -n "__fish_dwell_using_subcommand worker" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand run" -l set -d 'Set a field of the plan, such as topology.link.rate=10Mbit/s; may be repeated' -r
complete -c dwell -n "__fish_dwell_using_subcommand run" -l on -d 'Bind the roles of the plan to devices, such as sender=pi4,receiver=pi3; may be repeated' -r
complete -c dwell -n "__fish_dwell_using_subcommand run" -l lab-program -d 'Create the lab with this program and run it in the nodes: a dwell-node of this version that was built with other options [default: this program]' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand run" -l events -d 'Append what happens to this file, as JSON lines (docs/formats.md)' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand run" -l resume -d 'Resume a run of this plan: its name, or last for the newest unfinished one' -r
complete -c dwell -n "__fish_dwell_using_subcommand run" -l seed -d 'Seed for the order of trials, unless the plan has one [default: random, printed]' -r
complete -c dwell -n "__fish_dwell_using_subcommand run" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand run" -l no-wait -d 'Fail instead of waiting while another run uses a device'
complete -c dwell -n "__fish_dwell_using_subcommand run" -l wait -d 'Wait while another run is active in the data directory; plans with devices always do'
complete -c dwell -n "__fish_dwell_using_subcommand run" -l dry-run -d 'Print the trials and the expected time, packets and bytes without running anything'
complete -c dwell -n "__fish_dwell_using_subcommand run" -l yes -d 'Do not ask for confirmation of a very large plan'
complete -c dwell -n "__fish_dwell_using_subcommand run" -l json -d 'Print the result as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand run" -s q -l quiet -d 'Print no progress, only the result'
complete -c dwell -n "__fish_dwell_using_subcommand run" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand runs" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand runs" -l json -d 'Print the list as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand runs" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand show" -l accurate -d 'Tolerances for paced packets instead of those in the plan, such as \'rate 5%, gap 10%\' or \'trains 20, confidence 95%\'' -r
complete -c dwell -n "__fish_dwell_using_subcommand show" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand show" -l json -d 'Print everything as one JSON object (dwell.run/1)'
complete -c dwell -n "__fish_dwell_using_subcommand show" -l recompute -d 'Recompute the figures from the samples, on all cores, instead of printing the stored ones'
complete -c dwell -n "__fish_dwell_using_subcommand show" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand report" -s o -l output -d 'Output file [default: RUN.html in the data directory]' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand report" -l accurate -d 'Tolerances for paced packets instead of those in the plan, such as \'rate 5%, gap 10%\' or \'trains 20, confidence 95%\'' -r
complete -c dwell -n "__fish_dwell_using_subcommand report" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand report" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand compare" -l metric -d 'Delay to compare, named like a sample column [default: the main delay of the first run, such as rtt_ns or node_delay_ns]' -r
complete -c dwell -n "__fish_dwell_using_subcommand compare" -l fail-if -d 'Exit with code 3 if this condition holds in any cell, or 5 if that cannot be decided; may be repeated' -r
complete -c dwell -n "__fish_dwell_using_subcommand compare" -s o -l output -d 'Write an HTML page with figures on shared axes' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand compare" -l seed -d 'Seed for resampling' -r
complete -c dwell -n "__fish_dwell_using_subcommand compare" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand compare" -l json -d 'Print the results as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand compare" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand export" -l format -d 'Output format' -r -f -a "csv\t'One row per sample, with its trial and axis values'
jsonl\t'One JSON object per sample, one per line'
parquet\t'The stored files, one per trial, and a table of trials'
hdr\t'HdrHistogram log with one histogram per trial of the run\'s main delay: the round trip, or the node delay of a flow'"
complete -c dwell -n "__fish_dwell_using_subcommand export" -l what -d 'Data to export' -r -f -a "samples\t'Samples of the trials'
host\t'Host activity during the trials, one row per value'
spikes\t'Causes of long delays (ping.explain), one row per part of a delay'"
complete -c dwell -n "__fish_dwell_using_subcommand export" -s o -l output -d 'Output file, `-` for standard output; for parquet, a directory [default: standard output; for parquet, RUN-samples, RUN-host or RUN-spikes]' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand export" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand export" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dwell -n "__fish_dwell_using_subcommand import" -l witness -d 'Compare a capture with this run (or last): match packets to probes by id, and show how far timestamps and gaps agree' -r
complete -c dwell -n "__fish_dwell_using_subcommand import" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand import" -l json -d 'Print a summary as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand import" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand audit" -l columns -d 'Meaning and unit of columns of a CSV: ROLE=NAME, ROLE=NAME:UNIT or NAME:UNIT, separated by commas. Roles: id, sent, received, latency, value, other. Units: ns, us, ms, s, min, h. #2 is the second column' -r
complete -c dwell -n "__fish_dwell_using_subcommand audit" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand audit" -l json -d 'Print the findings as one JSON object (dwell.audit/1)'
complete -c dwell -n "__fish_dwell_using_subcommand audit" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand fit" -l where -d 'Use only trials with this value of an axis, such as topology.quota.n2=10%; repeatable' -r
complete -c dwell -n "__fish_dwell_using_subcommand fit" -s o -l output -d 'Write the model to this file, for `dwell predict`; `-` for standard output' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand fit" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand fit" -l json -d 'Print the model as one JSON object (dwell.node-model/1)'
complete -c dwell -n "__fish_dwell_using_subcommand fit" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand predict" -l deadline -d 'End-to-end delay that packets may have, such as 5ms' -r
complete -c dwell -n "__fish_dwell_using_subcommand predict" -l probability -d 'Share of the packets that must arrive in time, between 0 and 1' -r
complete -c dwell -n "__fish_dwell_using_subcommand predict" -l json -d 'Print the prediction as one JSON object (dwell.prediction/1)'
complete -c dwell -n "__fish_dwell_using_subcommand predict" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand note" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand note" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand delete" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand delete" -l yes -d 'Do not ask for confirmation'
complete -c dwell -n "__fish_dwell_using_subcommand delete" -l json -d 'Print the result as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand delete" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand replay" -l case -d 'Run only this case; may be repeated [default: all]' -r
complete -c dwell -n "__fish_dwell_using_subcommand replay" -l set -d 'Set a field of each plan, such as trials.repetitions=3; may be repeated' -r
complete -c dwell -n "__fish_dwell_using_subcommand replay" -l on -d 'Measure on devices instead of in a lab, such as n1=pi4,n2=pi3: a device for each node of the plan\'s lab' -r
complete -c dwell -n "__fish_dwell_using_subcommand replay" -s o -l output -d 'Write a report of each case into this directory [default: the data directory]' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand replay" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand replay" -l list -d 'List the replays with their cost'
complete -c dwell -n "__fish_dwell_using_subcommand replay" -l names -d 'With --list: print only the names'
complete -c dwell -n "__fish_dwell_using_subcommand replay" -l short -d 'Run the short form: fewer levels of each parameter, minutes instead of hours'
complete -c dwell -n "__fish_dwell_using_subcommand replay" -l json -d 'Print the verdicts as one JSON object (dwell.replay/1)'
complete -c dwell -n "__fish_dwell_using_subcommand replay" -s q -l quiet -d 'Print no progress, only the verdicts'
complete -c dwell -n "__fish_dwell_using_subcommand replay" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand device; and not __fish_seen_subcommand_from add list check show edit remove help" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand device; and not __fish_seen_subcommand_from add list check show edit remove help" -f -a "add" -d 'Add a device: its name and how ssh reaches it'
complete -c dwell -n "__fish_dwell_using_subcommand device; and not __fish_seen_subcommand_from add list check show edit remove help" -f -a "list" -d 'List the devices'
complete -c dwell -n "__fish_dwell_using_subcommand device; and not __fish_seen_subcommand_from add list check show edit remove help" -f -a "check" -d 'Connect to devices and find what they can measure'
complete -c dwell -n "__fish_dwell_using_subcommand device; and not __fish_seen_subcommand_from add list check show edit remove help" -f -a "show" -d 'Show a device: its last check, what it lacks, its runs and its verdict card'
complete -c dwell -n "__fish_dwell_using_subcommand device; and not __fish_seen_subcommand_from add list check show edit remove help" -f -a "edit" -d 'Change or clear fields of a device'
complete -c dwell -n "__fish_dwell_using_subcommand device; and not __fish_seen_subcommand_from add list check show edit remove help" -f -a "remove" -d 'Remove devices, and the node program that was copied to them'
complete -c dwell -n "__fish_dwell_using_subcommand device; and not __fish_seen_subcommand_from add list check show edit remove help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from add" -l model -d 'Model, such as \'Raspberry Pi 4B\'' -r
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from add" -l role -d 'Use of the device, such as sender' -r
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from add" -l interface -d 'Interface that carries test traffic, such as eth0; may be repeated' -r
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from add" -l address -d 'IP address that probes are sent to; may be repeated [default: that of the SSH host]' -r
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from add" -l tag -d 'Tag for selecting devices; may be repeated' -r
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from add" -l note -d 'Note' -r
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from add" -l price -d 'Price, such as \'35 USD\'' -r
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from add" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from add" -l sudo -d 'Run the node as root, by sudo -n'
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from add" -l check -d 'Check the device at once'
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from list" -l tag -d 'List the devices with this tag; may be repeated' -r
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from list" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from list" -l verdicts -d 'Show which networks each device can measure, beside the boards of Mok 2015'
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from list" -l json -d 'Print the list as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from check" -l tag -d 'Check the devices with this tag; may be repeated' -r
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from check" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from check" -l json -d 'Print the results as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from check" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from show" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from show" -l json -d 'Print everything as one JSON object'
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from edit" -l name -d 'New name' -r
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from edit" -l destination -d 'New destination' -r
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from edit" -l model -d 'Model, such as \'Raspberry Pi 4B\'' -r
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from edit" -l role -d 'Use of the device, such as sender' -r
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from edit" -l interface -d 'Interface that carries test traffic, such as eth0; may be repeated' -r
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from edit" -l address -d 'IP address that probes are sent to; may be repeated [default: that of the SSH host]' -r
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from edit" -l tag -d 'Tag for selecting devices; may be repeated' -r
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from edit" -l note -d 'Note' -r
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from edit" -l price -d 'Price, such as \'35 USD\'' -r
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from edit" -l clear -d 'Clear a field, by the name of its option, such as note; may be repeated' -r
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from edit" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from edit" -l sudo -d 'Run the node as root, by sudo -n'
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from edit" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from remove" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from remove" -l yes -d 'Do not ask for confirmation'
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from remove" -l keep-files -d 'Do not connect to the device; leave the node program there'
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from remove" -l force -d 'Remove the device even if the node program cannot be removed from it'
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from help" -f -a "add" -d 'Add a device: its name and how ssh reaches it'
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from help" -f -a "list" -d 'List the devices'
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from help" -f -a "check" -d 'Connect to devices and find what they can measure'
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from help" -f -a "show" -d 'Show a device: its last check, what it lacks, its runs and its verdict card'
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from help" -f -a "edit" -d 'Change or clear fields of a device'
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from help" -f -a "remove" -d 'Remove devices, and the node program that was copied to them'
complete -c dwell -n "__fish_dwell_using_subcommand device; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dwell -n "__fish_dwell_using_subcommand serve; and not __fish_seen_subcommand_from token help" -l listen -d 'Address and port to listen on; port 0 takes a free one' -r
complete -c dwell -n "__fish_dwell_using_subcommand serve; and not __fish_seen_subcommand_from token help" -l host -d 'Name by which browsers reach the server, besides localhost (repeatable)' -r
complete -c dwell -n "__fish_dwell_using_subcommand serve; and not __fish_seen_subcommand_from token help" -l tls-cert -d 'Certificate for HTTPS, followed by those of its issuers (PEM)' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand serve; and not __fish_seen_subcommand_from token help" -l tls-key -d 'Private key of the certificate (PEM); SIGHUP reads both again' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand serve; and not __fish_seen_subcommand_from token help" -l database -d 'PostgreSQL database of the hub, like postgres:///dwell or postgres://USER@HOST/dwell, with a password only in the environment [default: SQLite in the data directory]' -r
complete -c dwell -n "__fish_dwell_using_subcommand serve; and not __fish_seen_subcommand_from token help" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand serve; and not __fish_seen_subcommand_from token help" -l insecure-http -d 'Listen on an address that other machines can reach without TLS'
complete -c dwell -n "__fish_dwell_using_subcommand serve; and not __fish_seen_subcommand_from token help" -l require-token -d 'Demand a token on loopback, too, even before one exists'
complete -c dwell -n "__fish_dwell_using_subcommand serve; and not __fish_seen_subcommand_from token help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dwell -n "__fish_dwell_using_subcommand serve; and not __fish_seen_subcommand_from token help" -f -a "token" -d 'Print a new token once; only its SHA-256 is stored'
complete -c dwell -n "__fish_dwell_using_subcommand serve; and not __fish_seen_subcommand_from token help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dwell -n "__fish_dwell_using_subcommand serve; and __fish_seen_subcommand_from token" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand serve; and __fish_seen_subcommand_from token" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand serve; and __fish_seen_subcommand_from help" -f -a "token" -d 'Print a new token once; only its SHA-256 is stored'
complete -c dwell -n "__fish_dwell_using_subcommand serve; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and not __fish_seen_subcommand_from schedule nodes alerts maintenance samples enroll rotate revoke keys nats-config help" -l interval -d 'Time between collections from a device, at most 50s' -r
complete -c dwell -n "__fish_dwell_using_subcommand hub; and not __fish_seen_subcommand_from schedule nodes alerts maintenance samples enroll rotate revoke keys nats-config help" -l keep -d 'Days to keep samples, or rows of a resolution: samples, 10s, 5m, 1h or 1d; may be repeated [default: samples=90, 10s=3, 5m=90, 1h=800, 1d=3660]' -r
complete -c dwell -n "__fish_dwell_using_subcommand hub; and not __fish_seen_subcommand_from schedule nodes alerts maintenance samples enroll rotate revoke keys nats-config help" -l tag -d 'Collect from the devices with this tag; may be repeated [default: all devices]' -r
complete -c dwell -n "__fish_dwell_using_subcommand hub; and not __fish_seen_subcommand_from schedule nodes alerts maintenance samples enroll rotate revoke keys nats-config help" -l database -d 'PostgreSQL database of the hub, like postgres:///dwell or postgres://USER@HOST/dwell, with a password only in the environment [default: SQLite in the data directory]' -r
complete -c dwell -n "__fish_dwell_using_subcommand hub; and not __fish_seen_subcommand_from schedule nodes alerts maintenance samples enroll rotate revoke keys nats-config help" -l nats -d 'Receive records from nats-server at this address, such as tls://hub.example.org:4222; always with TLS' -r
complete -c dwell -n "__fish_dwell_using_subcommand hub; and not __fish_seen_subcommand_from schedule nodes alerts maintenance samples enroll rotate revoke keys nats-config help" -l nats-ca -d 'Certificates that verify nats-server, PEM [default: those of the system]' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand hub; and not __fish_seen_subcommand_from schedule nodes alerts maintenance samples enroll rotate revoke keys nats-config help" -l nats-key -d 'Seed of the hub\'s key [default: nats/hub.nk in the data directory]' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand hub; and not __fish_seen_subcommand_from schedule nodes alerts maintenance samples enroll rotate revoke keys nats-config help" -l nats-size -d 'Size of the stream in which records wait for a hub [default: 4GiB; an existing one stays as it is]' -r
complete -c dwell -n "__fish_dwell_using_subcommand hub; and not __fish_seen_subcommand_from schedule nodes alerts maintenance samples enroll rotate revoke keys nats-config help" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand hub; and not __fish_seen_subcommand_from schedule nodes alerts maintenance samples enroll rotate revoke keys nats-config help" -l embedded -d 'Collect results from the devices over SSH, in one process; for up to 100 nodes'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and not __fish_seen_subcommand_from schedule nodes alerts maintenance samples enroll rotate revoke keys nats-config help" -l accept-clock -d 'Accept the clock of this machine although it is more than 2 days from the hub\'s last time, as after a longer stop'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and not __fish_seen_subcommand_from schedule nodes alerts maintenance samples enroll rotate revoke keys nats-config help" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and not __fish_seen_subcommand_from schedule nodes alerts maintenance samples enroll rotate revoke keys nats-config help" -f -a "schedule" -d 'Check, apply and list schedules: who measures whom, how and when'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and not __fish_seen_subcommand_from schedule nodes alerts maintenance samples enroll rotate revoke keys nats-config help" -f -a "nodes" -d 'List the nodes that the hub knows, with what is wrong with them'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and not __fish_seen_subcommand_from schedule nodes alerts maintenance samples enroll rotate revoke keys nats-config help" -f -a "alerts" -d 'Check, apply and test alert rules, and list alerts'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and not __fish_seen_subcommand_from schedule nodes alerts maintenance samples enroll rotate revoke keys nats-config help" -f -a "maintenance" -d 'Suppress alerts about a node for some time'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and not __fish_seen_subcommand_from schedule nodes alerts maintenance samples enroll rotate revoke keys nats-config help" -f -a "samples" -d 'Request samples of probes, and list those that are stored'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and not __fish_seen_subcommand_from schedule nodes alerts maintenance samples enroll rotate revoke keys nats-config help" -f -a "enroll" -d 'Let a node connect to the bus with its key'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and not __fish_seen_subcommand_from schedule nodes alerts maintenance samples enroll rotate revoke keys nats-config help" -f -a "rotate" -d 'Replace the key of a node; both are valid for a while'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and not __fish_seen_subcommand_from schedule nodes alerts maintenance samples enroll rotate revoke keys nats-config help" -f -a "revoke" -d 'Remove the keys of a node or a leaf server, and close its connections'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and not __fish_seen_subcommand_from schedule nodes alerts maintenance samples enroll rotate revoke keys nats-config help" -f -a "keys" -d 'List the keys that nats-server accepts'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and not __fish_seen_subcommand_from schedule nodes alerts maintenance samples enroll rotate revoke keys nats-config help" -f -a "nats-config" -d 'Write the configuration of nats-server: for the hub, or for the leaf server of a site'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and not __fish_seen_subcommand_from schedule nodes alerts maintenance samples enroll rotate revoke keys nats-config help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from schedule" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from schedule" -f -a "check" -d 'Show what a schedule costs each node, without applying it'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from schedule" -f -a "apply" -d 'Show what a schedule costs each node, and apply it'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from schedule" -f -a "history" -d 'List the applied schedules'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from schedule" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from nodes" -l wait -d 'Wait at most this long until each device has delivered records and follows the newest schedule; exit code 1 if one does not' -r
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from nodes" -l database -d 'PostgreSQL database of the hub, like postgres:///dwell or postgres://USER@HOST/dwell, with a password only in the environment [default: SQLite in the data directory]' -r
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from nodes" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from nodes" -l json -d 'Print the list as one JSON object (dwell.hub-nodes/1)'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from nodes" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from alerts" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from alerts" -f -a "check" -d 'Show what alert rules watch, without applying them'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from alerts" -f -a "apply" -d 'Show what alert rules watch, and apply them'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from alerts" -f -a "history" -d 'List alerts that fired and cleared, with the receivers that were notified'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from alerts" -f -a "status" -d 'List alerts that are firing or pending, undelivered messages and maintenance'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from alerts" -f -a "test" -d 'Send a message to a receiver of the applied rules'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from alerts" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from maintenance" -l for -d 'Time from now, like 2h; at most 2160h' -r
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from maintenance" -l reason -d 'Reason, for other people' -r
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from maintenance" -l database -d 'PostgreSQL database of the hub, like postgres:///dwell or postgres://USER@HOST/dwell, with a password only in the environment [default: SQLite in the data directory]' -r
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from maintenance" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from maintenance" -l end -d 'End the maintenance now'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from maintenance" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from samples" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from samples" -f -a "request" -d 'Request the samples of a pair in a span'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from samples" -f -a "list" -d 'List requests for samples, and the files of samples'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from samples" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from enroll" -l bus-config -d 'File of accepted keys, which the configuration of nats-server includes [default: nats/keys.conf in the data directory]' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from enroll" -l nats-pid -d 'File with the process id of nats-server, to make it read its keys again [default: nats/nats-server.pid in the data directory]' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from enroll" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from enroll" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from rotate" -l bus-config -d 'File of accepted keys, which the configuration of nats-server includes [default: nats/keys.conf in the data directory]' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from rotate" -l nats-pid -d 'File with the process id of nats-server, to make it read its keys again [default: nats/nats-server.pid in the data directory]' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from rotate" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from rotate" -l finish -d 'Remove the old key, when the node uses the new one'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from rotate" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from revoke" -l bus-config -d 'File of accepted keys, which the configuration of nats-server includes [default: nats/keys.conf in the data directory]' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from revoke" -l nats-pid -d 'File with the process id of nats-server, to make it read its keys again [default: nats/nats-server.pid in the data directory]' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from revoke" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from revoke" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from keys" -l bus-config -d 'File of accepted keys, which the configuration of nats-server includes [default: nats/keys.conf in the data directory]' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from keys" -l nats-pid -d 'File with the process id of nats-server, to make it read its keys again [default: nats/nats-server.pid in the data directory]' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from keys" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from keys" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from nats-config" -l listen -d 'Address and port for hubs and nodes [default: that of the last configuration of the hub\'s server, or 0.0.0.0:4222]' -r
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from nats-config" -l listen-leaf -d 'Address and port for leaf servers of sites, or `none` [default: as in the last configuration, or none may connect]' -r
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from nats-config" -l tls-cert -d 'Certificate chain of the server, PEM' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from nats-config" -l tls-key -d 'Private key of the certificate, PEM' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from nats-config" -l nats-size -d 'Size of the stream in which records wait for a hub [default: that of the last configuration, or 4GiB]' -r
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from nats-config" -l leaf -d 'Write the configuration of a leaf server for this site instead' -r
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from nats-config" -l nodes -d 'Nodes of the site [default: those of its last configuration]' -r
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from nats-config" -l remote -d 'Leaf address of the hub\'s server, such as tls://hub.example.org:7422' -r
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from nats-config" -l tls-ca -d 'Certificates by which the leaf server verifies the hub\'s server, PEM [default: those of the system]' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from nats-config" -l output -d 'Directory for the configuration [default: nats, or nats/leaf-SITE, in the data directory]' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from nats-config" -l bus-config -d 'File of accepted keys, which the configuration of nats-server includes [default: nats/keys.conf in the data directory]' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from nats-config" -l nats-pid -d 'File with the process id of nats-server, to make it read its keys again [default: nats/nats-server.pid in the data directory]' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from nats-config" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from nats-config" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from help" -f -a "schedule" -d 'Check, apply and list schedules: who measures whom, how and when'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from help" -f -a "nodes" -d 'List the nodes that the hub knows, with what is wrong with them'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from help" -f -a "alerts" -d 'Check, apply and test alert rules, and list alerts'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from help" -f -a "maintenance" -d 'Suppress alerts about a node for some time'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from help" -f -a "samples" -d 'Request samples of probes, and list those that are stored'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from help" -f -a "enroll" -d 'Let a node connect to the bus with its key'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from help" -f -a "rotate" -d 'Replace the key of a node; both are valid for a while'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from help" -f -a "revoke" -d 'Remove the keys of a node or a leaf server, and close its connections'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from help" -f -a "keys" -d 'List the keys that nats-server accepts'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from help" -f -a "nats-config" -d 'Write the configuration of nats-server: for the hub, or for the leaf server of a site'
complete -c dwell -n "__fish_dwell_using_subcommand hub; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dwell -n "__fish_dwell_using_subcommand query" -l metric -d 'Delay' -r
complete -c dwell -n "__fish_dwell_using_subcommand query" -l last -d 'Range that ends now, like 24h or 30d [default: 24h, or 10m until the hub has rows for 24h]' -r
complete -c dwell -n "__fish_dwell_using_subcommand query" -l from -d 'Start of the range: a date or a time in UTC, like 2026-11-26 or 2026-11-26T08:00Z' -r
complete -c dwell -n "__fish_dwell_using_subcommand query" -l to -d 'End of the range [default: now]' -r
complete -c dwell -n "__fish_dwell_using_subcommand query" -l step -d 'Length of a row, a multiple of 10s [default: by the length of the range]' -r
complete -c dwell -n "__fish_dwell_using_subcommand query" -l measure -d 'Only this measurement of the schedule' -r
complete -c dwell -n "__fish_dwell_using_subcommand query" -l protocol -d 'Only this protocol' -r
complete -c dwell -n "__fish_dwell_using_subcommand query" -l format -d 'Form of the answer' -r -f -a "table\t'A table for people'
csv\t'Comma-separated values, one row per stream and step'
json\t'One JSON object (dwell.query/1)'"
complete -c dwell -n "__fish_dwell_using_subcommand query" -l database -d 'PostgreSQL database of the hub, like postgres:///dwell or postgres://USER@HOST/dwell, with a password only in the environment [default: SQLite in the data directory]' -r
complete -c dwell -n "__fish_dwell_using_subcommand query" -l data -d 'Directory of runs and samples' -r -F
complete -c dwell -n "__fish_dwell_using_subcommand query" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dwell -n "__fish_dwell_using_subcommand completions" -s h -l help -d 'Print help'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping range reflect node-sim relay pace load trace lab agent doctor worker run runs show report compare export import audit fit predict note delete replay device serve hub query completions help" -f -a "ping" -d 'Send probes and measure their round-trip delay'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping range reflect node-sim relay pace load trace lab agent doctor worker run runs show report compare export import audit fit predict note delete replay device serve hub query completions help" -f -a "range" -d 'Estimate the distance of a device from round-trip times'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping range reflect node-sim relay pace load trace lab agent doctor worker run runs show report compare export import audit fit predict note delete replay device serve hub query completions help" -f -a "reflect" -d 'Answer probes'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping range reflect node-sim relay pace load trace lab agent doctor worker run runs show report compare export import audit fit predict note delete replay device serve hub query completions help" -f -a "node-sim" -d 'Answer requests like a microcontroller with a coarse clock and a slow console'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping range reflect node-sim relay pace load trace lab agent doctor worker run runs show report compare export import audit fit predict note delete replay device serve hub query completions help" -f -a "relay" -d 'Forward packets and measure their delay inside this node'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping range reflect node-sim relay pace load trace lab agent doctor worker run runs show report compare export import audit fit predict note delete replay device serve hub query completions help" -f -a "pace" -d 'Send packet pairs or trains on schedule and measure the timing error'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping range reflect node-sim relay pace load trace lab agent doctor worker run runs show report compare export import audit fit predict note delete replay device serve hub query completions help" -f -a "load" -d 'Load this node\'s CPUs or the network'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping range reflect node-sim relay pace load trace lab agent doctor worker run runs show report compare export import audit fit predict note delete replay device serve hub query completions help" -f -a "trace" -d 'Timestamp packets that pass through this node, from any sender'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping range reflect node-sim relay pace load trace lab agent doctor worker run runs show report compare export import audit fit predict note delete replay device serve hub query completions help" -f -a "lab" -d 'Create and remove labs: network namespaces that act as machines'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping range reflect node-sim relay pace load trace lab agent doctor worker run runs show report compare export import audit fit predict note delete replay device serve hub query completions help" -f -a "agent" -d 'Measure continuously on a schedule, and keep the results for a hub'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping range reflect node-sim relay pace load trace lab agent doctor worker run runs show report compare export import audit fit predict note delete replay device serve hub query completions help" -f -a "doctor" -d 'Report what this node can measure, and how precisely'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping range reflect node-sim relay pace load trace lab agent doctor worker run runs show report compare export import audit fit predict note delete replay device serve hub query completions help" -f -a "worker" -d 'Execute jobs for a controller over standard input and output'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping range reflect node-sim relay pace load trace lab agent doctor worker run runs show report compare export import audit fit predict note delete replay device serve hub query completions help" -f -a "run" -d 'Run a plan: all trials of its matrix, each stored as soon as it ends'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping range reflect node-sim relay pace load trace lab agent doctor worker run runs show report compare export import audit fit predict note delete replay device serve hub query completions help" -f -a "runs" -d 'List the runs in the data directory'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping range reflect node-sim relay pace load trace lab agent doctor worker run runs show report compare export import audit fit predict note delete replay device serve hub query completions help" -f -a "show" -d 'Show the results of a run'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping range reflect node-sim relay pace load trace lab agent doctor worker run runs show report compare export import audit fit predict note delete replay device serve hub query completions help" -f -a "report" -d 'Write a self-contained HTML report of a run'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping range reflect node-sim relay pace load trace lab agent doctor worker run runs show report compare export import audit fit predict note delete replay device serve hub query completions help" -f -a "compare" -d 'Compare runs: differences of percentiles, with confidence intervals'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping range reflect node-sim relay pace load trace lab agent doctor worker run runs show report compare export import audit fit predict note delete replay device serve hub query completions help" -f -a "export" -d 'Export the samples of a run'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping range reflect node-sim relay pace load trace lab agent doctor worker run runs show report compare export import audit fit predict note delete replay device serve hub query completions help" -f -a "import" -d 'Import measurements of dwell or another program'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping range reflect node-sim relay pace load trace lab agent doctor worker run runs show report compare export import audit fit predict note delete replay device serve hub query completions help" -f -a "audit" -d 'Check a published table, a description of tables or a run: numbers that contradict their rows, ticks, time-outs, closed loops, drift'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping range reflect node-sim relay pace load trace lab agent doctor worker run runs show report compare export import audit fit predict note delete replay device serve hub query completions help" -f -a "fit" -d 'Fit a model of a relaying node to a run'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping range reflect node-sim relay pace load trace lab agent doctor worker run runs show report compare export import audit fit predict note delete replay device serve hub query completions help" -f -a "predict" -d 'Predict end-to-end delays from models, and choose relays that meet a deadline'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping range reflect node-sim relay pace load trace lab agent doctor worker run runs show report compare export import audit fit predict note delete replay device serve hub query completions help" -f -a "note" -d 'Add a note to a run'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping range reflect node-sim relay pace load trace lab agent doctor worker run runs show report compare export import audit fit predict note delete replay device serve hub query completions help" -f -a "delete" -d 'Delete a run and its samples'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping range reflect node-sim relay pace load trace lab agent doctor worker run runs show report compare export import audit fit predict note delete replay device serve hub query completions help" -f -a "replay" -d 'Repeat the experiment of a founding document and judge its claims'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping range reflect node-sim relay pace load trace lab agent doctor worker run runs show report compare export import audit fit predict note delete replay device serve hub query completions help" -f -a "device" -d 'Manage devices: machines that are reached by SSH'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping range reflect node-sim relay pace load trace lab agent doctor worker run runs show report compare export import audit fit predict note delete replay device serve hub query completions help" -f -a "serve" -d 'Serve pages and an HTTP API about runs, devices and experiments'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping range reflect node-sim relay pace load trace lab agent doctor worker run runs show report compare export import audit fit predict note delete replay device serve hub query completions help" -f -a "hub" -d 'Collect the results of a fleet\'s agents, and apply schedules'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping range reflect node-sim relay pace load trace lab agent doctor worker run runs show report compare export import audit fit predict note delete replay device serve hub query completions help" -f -a "query" -d 'Show the delays of a pair of nodes over time'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping range reflect node-sim relay pace load trace lab agent doctor worker run runs show report compare export import audit fit predict note delete replay device serve hub query completions help" -f -a "completions" -d 'Print shell completions to standard output'
complete -c dwell -n "__fish_dwell_using_subcommand help; and not __fish_seen_subcommand_from ping range reflect node-sim relay pace load trace lab agent doctor worker run runs show report compare export import audit fit predict note delete replay device serve hub query completions help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from range" -f -a "calibrate" -d 'Measure round trips at a known distance, for later measurements'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from pace" -f -a "sink" -d 'Timestamp arriving packets for senders that use --sink'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from load" -f -a "cpu" -d 'Keep CPUs busy for a share of the time'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from load" -f -a "traffic" -d 'Send UDP traffic at a rate, or bulk data over TCP'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from load" -f -a "sink" -d 'Receive and count traffic'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from lab" -f -a "up" -d 'Create a lab: nodes, links, addresses and routes'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from lab" -f -a "exec" -d 'Run a command in a node'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from lab" -f -a "list" -d 'List the labs'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from lab" -f -a "routes" -d 'Print the routes between all nodes and where they come from'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from lab" -f -a "down" -d 'End all processes in a lab and remove it'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from device" -f -a "add" -d 'Add a device: its name and how ssh reaches it'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from device" -f -a "list" -d 'List the devices'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from device" -f -a "check" -d 'Connect to devices and find what they can measure'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from device" -f -a "show" -d 'Show a device: its last check, what it lacks, its runs and its verdict card'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from device" -f -a "edit" -d 'Change or clear fields of a device'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from device" -f -a "remove" -d 'Remove devices, and the node program that was copied to them'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from serve" -f -a "token" -d 'Print a new token once; only its SHA-256 is stored'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from hub" -f -a "schedule" -d 'Check, apply and list schedules: who measures whom, how and when'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from hub" -f -a "nodes" -d 'List the nodes that the hub knows, with what is wrong with them'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from hub" -f -a "alerts" -d 'Check, apply and test alert rules, and list alerts'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from hub" -f -a "maintenance" -d 'Suppress alerts about a node for some time'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from hub" -f -a "samples" -d 'Request samples of probes, and list those that are stored'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from hub" -f -a "enroll" -d 'Let a node connect to the bus with its key'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from hub" -f -a "rotate" -d 'Replace the key of a node; both are valid for a while'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from hub" -f -a "revoke" -d 'Remove the keys of a node or a leaf server, and close its connections'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from hub" -f -a "keys" -d 'List the keys that nats-server accepts'
complete -c dwell -n "__fish_dwell_using_subcommand help; and __fish_seen_subcommand_from hub" -f -a "nats-config" -d 'Write the configuration of nats-server: for the hub, or for the leaf server of a site'
