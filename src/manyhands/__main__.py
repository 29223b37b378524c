from manyhands.cli.main import main

main()
